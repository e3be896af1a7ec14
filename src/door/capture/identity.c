/* Reading and making the UUIDs of captured events; see the header for the rules.
 *
 * Invariants: identity_derive is part of what is stored for ever. A receipt of last year must be
 * found by the message id of today's repeat, so its input and its layout never change (the tests
 * hold known answers). Answers: false for what is no UUID, ERR_IO without random bytes. Nothing
 * here stops the server or aborts on input. */
#include "door/capture/identity.h"

#include "base/ensure.h"
#include "base/hash.h"
#include "os/os.h"

#define MS_MAX ((INT64_C(1) << 48) - 1)

static int digit_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }
    return -1;
}

/* 32 digits; with hyphens, also one before the digits 8, 12, 16 and 20. The length fits. */
static bool read_digits(const char *at, bool hyphens, struct uuid *out)
{
    for (unsigned i = 0; i < 16; i++) {
        if (hyphens && (i == 4 || i == 6 || i == 8 || i == 10)) {
            if (*at != '-') {
                return false;
            }
            at++;
        }
        int high = digit_value(at[0]);
        int low = digit_value(at[1]);
        if (high < 0 || low < 0) {
            return false;
        }
        out->byte[i] = (uint8_t)(high << 4 | low);
        at += 2;
    }
    return true;
}

bool identity_parse(struct slice text, struct uuid *out)
{
    return text.len == UUID_TEXT_LEN && read_digits(text.ptr, true, out);
}

bool identity_parse_loose(struct slice text, struct uuid *out)
{
    static const struct slice urn = {"urn:uuid:", 9};
    if (text.len == 32) {
        return read_digits(text.ptr, false, out);
    }
    if (text.len == UUID_TEXT_LEN + 2 && text.ptr[0] == '{' && text.ptr[text.len - 1] == '}') {
        text = slice_of(text.ptr + 1, UUID_TEXT_LEN);
    } else if (slice_starts(text, urn)) {
        text = slice_from(text, urn.len);
    }
    return identity_parse(text, out);
}

static void mark(struct uuid *u, unsigned version)
{
    u->byte[6] = (uint8_t)(version << 4 | (u->byte[6] & 0x0fu));
    u->byte[8] = (uint8_t)(0x80u | (u->byte[8] & 0x3fu));
}

void identity_derive(struct slice project, struct slice source, struct slice message_id,
                     struct uuid *out)
{
    /* With no NUL in the first two, no two triples give the same bytes to hash. */
    ensure(project.len == 0 || memchr(project.ptr, '\0', project.len) == NULL);
    ensure(source.len == 0 || memchr(source.ptr, '\0', source.len) == NULL);
    uint8_t hash[SHA256_LEN];
    struct sha256 h;
    sha256_start(&h);
    sha256_add(&h, project.ptr, project.len);
    sha256_add(&h, "", 1);
    sha256_add(&h, source.ptr, source.len);
    sha256_add(&h, "", 1);
    sha256_add(&h, message_id.ptr, message_id.len);
    sha256_end(&h, hash);
    static_assert(sizeof out->byte <= sizeof hash, "an id fits into a hash");
    memcpy(out->byte, hash, sizeof out->byte);
    mark(out, 8);
}

int identity_new(int64_t now_ms, struct uuid *out)
{
    ensure(now_ms >= 0);
    ensure(now_ms <= MS_MAX);
    if (os_random(out->byte + 6, sizeof out->byte - 6) < 0) {
        return ERR_IO;
    }
    for (unsigned i = 0; i < 6; i++) {
        out->byte[i] = (uint8_t)(now_ms >> (40 - 8 * i));
    }
    mark(out, 7);
    return 0;
}
