/* decode_base64: base64 as released SDKs and the browsers and proxies around them have sent it
 * (spec/capture.md A2 steps 2, 3 and 6, cases C04, C05).
 *
 * Taken besides RFC 4648 section 4: the URL-safe alphabet (section 5), mixed too; missing padding;
 * a space for '+', as form decoding leaves it; %2B %2F %3D %20 of text that was never form-decoded;
 * CR, LF and tab. Behind '=' only padding may follow. One character left over (6 bits) is a cut
 * text and refused; bits left over in the last one are not looked at.
 *
 * The output is at most three quarters of the input. Answers: ERR_INVALID_ENCODING, ERR_NO_MEMORY.
 */
#include "base/ensure.h"
#include "door/capture/decode_internal.h"

#define SNIFF_BYTES 128

enum { BAD = -1, PAD = -2, SKIP = -3 };

static int value_of(unsigned char c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    switch (c) {
    case '+':
    case '-':
    case ' ':
        return 62;
    case '/':
    case '_':
        return 63;
    case '=':
        return PAD;
    case '\r':
    case '\n':
    case '\t':
        return SKIP;
    default:
        return BAD;
    }
}

/* The value of the character at `i`, which may be a percent escape; *used is its length. */
static int next_value(struct slice in, size_t i, size_t *used)
{
    static const struct {
        char text[3];
        unsigned char c;
    } escapes[] = {{"2B", '+'}, {"2F", '/'}, {"3D", '='}, {"20", ' '}};
    *used = 1;
    if (in.ptr[i] != '%') {
        return value_of((unsigned char)in.ptr[i]);
    }
    if (in.len - i < 3) {
        return BAD;
    }
    for (size_t k = 0; k < sizeof escapes / sizeof *escapes; k++) {
        char low = in.ptr[i + 2];
        low = low >= 'a' && low <= 'z' ? (char)(low - 'a' + 'A') : low;
        if (in.ptr[i + 1] == escapes[k].text[0] && low == escapes[k].text[1]) {
            *used = 3;
            return value_of(escapes[k].c);
        }
    }
    return BAD;
}

bool decode_looks_base64(struct slice in)
{
    size_t end = in.len < SNIFF_BYTES ? in.len : SNIFF_BYTES;
    size_t used;
    for (size_t i = 0; i < end; i += used) {
        if (next_value(in, i, &used) == BAD) {
            return false;
        }
    }
    return in.len > 0;
}

int decode_base64(struct slice in, struct buf *out, struct err *e)
{
    if (!buf_reserve(out, in.len / 4 * 3 + 3)) {
        return err_set(e, ERR_NO_MEMORY, "base64: no memory for the body");
    }
    uint32_t bits = 0;
    unsigned count = 0; /* characters of the running group of four */
    bool padded = false;
    size_t used;
    for (size_t i = 0; i < in.len; i += used) {
        int v = next_value(in, i, &used);
        if (v == SKIP) {
            continue;
        }
        if (v == BAD || (padded && v != PAD)) {
            return err_set_at(e, ERR_INVALID_ENCODING, i, "base64: byte %zu is %s", i,
                              v == BAD ? "no base64" : "behind the padding");
        }
        if (v == PAD) {
            padded = true;
            continue;
        }
        bits = bits << 6 | (uint32_t)v;
        count++;
        if (count == 4) {
            char three[3] = {(char)(bits >> 16 & 0xff), (char)(bits >> 8 & 0xff),
                             (char)(bits & 0xff)};
            buf_put(out, three, 3);
            count = 0;
        }
    }
    if (count == 1) {
        return err_set_at(e, ERR_INVALID_ENCODING, in.len,
                          "base64: the text ends at byte %zu in the middle of a group", in.len);
    }
    if (count >= 2) {
        char two[2] = {(char)(bits >> (count == 3 ? 10 : 4) & 0xff), (char)(bits >> 2 & 0xff)};
        buf_put(out, two, count - 1);
    }
    ensure(!out->failed);
    return 0;
}
