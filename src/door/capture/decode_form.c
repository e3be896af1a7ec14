/* decode_form: form bodies (spec/capture.md A2 steps 2 and 3, cases C04, C05, C53).
 *
 * data=<percent-encoded base64 or JSON>, beside it _, ip, ver, compression. Whether a body is a
 * form is told by its content: Rudder's node library declares JSON as a form, beacons declare forms
 * as text (spec/client-wire.md 1.9). JSON that holds "&ip=" is no form: JSON begins with a bracket.
 *
 * Of a repeated field the first counts. A broken percent escape stays as it is, as browsers decode
 * it; whether the text then means anything is for the JSON reader to say. Answers: ERR_NO_MEMORY.
 * */
#include "door/capture/decode_internal.h"

#define SNIFF_BYTES 128

static const char *const form_names[] = {"data=", "_=", "ip=", "compression="};

static bool field_begins(struct slice in)
{
    for (size_t i = 0; i < sizeof form_names / sizeof *form_names; i++) {
        if (slice_starts(in, slice_cstr(form_names[i]))) {
            return true;
        }
    }
    return false;
}

bool decode_looks_form(struct slice in, bool declared)
{
    size_t end = declared || in.len < SNIFF_BYTES ? in.len : SNIFF_BYTES;
    if (field_begins(in)) {
        return true;
    }
    for (size_t i = 0; i < end; i++) {
        const char *next = memchr(in.ptr + i, '&', end - i);
        if (next == NULL) {
            return false;
        }
        i = (size_t)(next - in.ptr);
        if (field_begins(slice_from(in, i + 1))) {
            return true;
        }
    }
    return false;
}

static void take_field(struct slice pair, const char *name, bool *has, struct slice *value)
{
    if (!*has && slice_starts(pair, slice_cstr(name))) {
        *has = true;
        *value = slice_from(pair, strlen(name));
    }
}

void decode_form_fields(struct slice in, struct decode_form *out)
{
    *out = (struct decode_form){0};
    while (in.len > 0) {
        const char *amp = memchr(in.ptr, '&', in.len);
        size_t len = amp == NULL ? in.len : (size_t)(amp - in.ptr);
        struct slice pair = slice_of(in.ptr, len);
        take_field(pair, "data=", &out->has_data, &out->data);
        take_field(pair, "compression=", &out->has_compression, &out->compression);
        in = slice_from(in, amp == NULL ? len : len + 1);
    }
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

int decode_percent(struct slice in, struct buf *out, struct err *e)
{
    if (!buf_reserve(out, in.len)) {
        return err_set(e, ERR_NO_MEMORY, "form: no memory for the body");
    }
    for (size_t i = 0; i < in.len; i++) {
        char c = in.ptr[i] == '+' ? ' ' : in.ptr[i];
        if (c == '%' && in.len - i >= 3) {
            int high = hex_value(in.ptr[i + 1]);
            int low = hex_value(in.ptr[i + 2]);
            if (high >= 0 && low >= 0) {
                c = (char)(high << 4 | low);
                i += 2;
            }
        }
        out->ptr[out->len] = c;
        out->len++;
    }
    return 0;
}
