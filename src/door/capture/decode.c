/* decode: which stages a capture body goes through, and in which order.
 *
 * PostHog's own order (spec/capture.md A2) is kept, but what a body is is told by its first bytes
 * wherever they tell, because what clients declare is often wrong (spec/client-wire.md 1.9): gzip
 * comes as text/plain, as a form, with the hint in the query, in the header, or with none at all.
 * So each pass looks at the text there is now:
 *
 *   1. gzip by magic, also as Latin-1 text (1f c2 8b): decompressed (once)
 *   2. a form (once): on with its field `data`; its `compression` is a hint if the query has none
 *   3. the hint lz64: refused by name
 *   4. base64 by looks (twice on the routes of DECODE_BASE64_TOO, else once): decoded; when it was
 *      hinted it must be base64, else what fails to decode is left as it is
 *   5. gzip or deflate by hint (if none was met): decompressed
 *
 * and JSON, told by its bracket, ends it. What is left is for the JSON reader to refuse.
 *
 * Hints, the first known one counts: query `compression`, form `compression`, header
 * Content-Encoding. In the two parameters unknown names are passed over, as PostHog does. The
 * header is read as a list; parameters (";q=1"), identity and empty items do not count. Two codings
 * at once (a bomb in a bomb, case C41) and codings that exist but are not supported are 415. A name
 * that is no coding at all ("utf-8" is seen) is 415 where a protocol is strict (v1, native) or
 * where it stands beside another, and passed over elsewhere.
 *
 * Every stage's output is bounded by decoded_bytes_max, stages free their input, and there are at
 * most five. Answers: see decode.h; nothing here stops the server or aborts on input. */
#include "base/ensure.h"
#include "door/capture/decode_internal.h"

enum coding { CODING_NONE, CODING_GZIP, CODING_DEFLATE, CODING_LZ64, CODING_BASE64 };

struct decoding {
    const struct decode_request *how;
    struct decoded *d;
    enum coding hint;
    bool from_query; /* the payload is the parameter `data`: no form, no header's hint */
    bool formed, inflated;
    unsigned base64_left;
};

static const char supported[] = "gzip, deflate and identity are supported";

bool decode_name_is(struct slice name, const char *lower)
{
    if (name.len != strlen(lower)) {
        return false;
    }
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        if ((c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c) != lower[i]) {
            return false;
        }
    }
    return true;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static struct slice trim(struct slice s)
{
    while (s.len > 0 && is_space(s.ptr[0])) {
        s = slice_from(s, 1);
    }
    while (s.len > 0 && is_space(s.ptr[s.len - 1])) {
        s.len--;
    }
    return s;
}

/* Up to a character, or all of it. */
static struct slice before(struct slice s, char c)
{
    const char *at = s.len == 0 ? NULL : memchr(s.ptr, c, s.len);
    return at == NULL ? s : slice_of(s.ptr, (size_t)(at - s.ptr));
}

/* ---- hints ---- */

struct coding_name {
    const char *name;
    enum coding coding;
};

static bool find_coding(const struct coding_name *names, size_t count, struct slice name,
                        enum coding *out)
{
    for (size_t i = 0; i < count; i++) {
        if (decode_name_is(name, names[i].name)) {
            *out = names[i].coding;
            return true;
        }
    }
    return false;
}

/* The parameter `compression` of the query or the form; unknown names are no hint. */
static enum coding parameter_hint(struct slice value)
{
    static const struct coding_name names[] = {
        {"gzip", CODING_GZIP},      {"gzip-js", CODING_GZIP},  {"lz64", CODING_LZ64},
        {"lz-string", CODING_LZ64}, {"base64", CODING_BASE64}, {"b64", CODING_BASE64},
    };
    enum coding coding = CODING_NONE;
    (void)find_coding(names, sizeof names / sizeof *names, trim(value), &coding);
    return coding;
}

static int refuse_coding(struct slice name, struct err *e)
{
    char shown[33]; /* visible ASCII only: a header is a stranger's text */
    size_t n = 0;
    while (n < name.len && n < sizeof shown - 1) {
        char c = name.ptr[n];
        shown[n] = (char)(c >= 0x20 && c <= 0x7e && c != '"' ? c : '?');
        n++;
    }
    shown[n] = '\0';
    return err_set(e, ERR_UNSUPPORTED_MEDIA_TYPE, "Content-Encoding \"%s\" is not supported; %s",
                   shown, supported);
}

/* One item of Content-Encoding: what it asks for, CODING_NONE when that is nothing. *known is false
 * for a name that is no coding. */
static int header_item(struct slice name, enum decode_mode mode, enum coding *out, bool *known,
                       struct err *e)
{
    static const struct coding_name names[] = {
        {"", CODING_NONE},       {"identity", CODING_NONE},   {"gzip", CODING_GZIP},
        {"x-gzip", CODING_GZIP}, {"deflate", CODING_DEFLATE},
    };
    static const struct coding_name posthog_names[] = {
        {"gzip-js", CODING_GZIP},  {"lz64", CODING_LZ64},  {"lz-string", CODING_LZ64},
        {"base64", CODING_BASE64}, {"b64", CODING_BASE64},
    };
    /* Registered codings that are not read here: guessing would only give a worse message. */
    static const struct coding_name others[] = {
        {"br", CODING_NONE},  {"zstd", CODING_NONE},         {"compress", CODING_NONE},
        {"dcb", CODING_NONE}, {"dcz", CODING_NONE},          {"x-compress", CODING_NONE},
        {"exi", CODING_NONE}, {"pack200-gzip", CODING_NONE}, {"aes128gcm", CODING_NONE},
    };
    bool posthog = mode == DECODE_POSTHOG || mode == DECODE_BASE64_TOO;
    enum coding other;
    *out = CODING_NONE;
    *known = find_coding(names, sizeof names / sizeof *names, name, out) ||
             (posthog &&
              find_coding(posthog_names, sizeof posthog_names / sizeof *posthog_names, name, out));
    if (*known) {
        return 0;
    }
    if (mode == DECODE_V1 || mode == DECODE_PLAIN ||
        find_coding(others, sizeof others / sizeof *others, name, &other)) {
        return refuse_coding(name, e);
    }
    return 0;
}

static int header_hint(struct slice value, enum decode_mode mode, enum coding *out, struct err *e)
{
    struct slice stranger = {0};
    unsigned items = 0;
    *out = CODING_NONE;
    while (value.len > 0) {
        struct slice item = before(value, ',');
        struct slice name = trim(before(item, ';'));
        enum coding coding;
        bool known;
        int r = header_item(name, mode, &coding, &known, e);
        if (r != 0) {
            return r;
        }
        if (coding != CODING_NONE && *out != CODING_NONE) {
            return err_set(e, ERR_UNSUPPORTED_MEDIA_TYPE,
                           "Content-Encoding names more than one coding; one at a time, %s",
                           supported);
        }
        *out = coding != CODING_NONE ? coding : *out;
        stranger = known ? stranger : name;
        items += name.len > 0 ? 1 : 0;
        value = slice_from(value, item.len + 1);
    }
    return stranger.len > 0 && items > 1 ? refuse_coding(stranger, e) : 0;
}

static int find_hint(struct decoding *g, struct err *e)
{
    const struct decode_request *how = g->how;
    if (how->mode == DECODE_POSTHOG || how->mode == DECODE_BASE64_TOO) {
        g->hint = parameter_hint(how->query_compression);
    }
    if (g->from_query) {
        return 0;
    }
    enum coding header;
    int r = header_hint(how->content_encoding, how->mode, &header, e);
    if (r == 0 && g->hint == CODING_NONE) {
        g->hint = header;
    }
    return r;
}

/* ---- stages ---- */

/* The text is from now on what a stage made. */
static void take(struct decoding *g, struct buf *made)
{
    ensure(!made->failed);
    buf_free(&g->d->owned);
    g->d->owned = *made;
    g->d->json = buf_slice(made);
    *made = (struct buf){0};
}

static int run_form(struct decoding *g, struct err *e)
{
    struct decode_form form;
    struct buf made = {0};
    g->formed = true;
    decode_form_fields(g->d->json, &form);
    if (!form.has_data) {
        return err_set(e, ERR_INVALID_ENCODING, "form: there is no field \"data\"");
    }
    /* The header's hint came from outside of the form: the form's own goes before it. */
    if (form.has_compression && parameter_hint(g->how->query_compression) == CODING_NONE) {
        enum coding own = parameter_hint(form.compression);
        g->hint = own != CODING_NONE ? own : g->hint;
    }
    int r = decode_percent(form.data, &made, e);
    if (r == 0) {
        take(g, &made);
    }
    buf_free(&made);
    return r;
}

static int run_gzip(struct decoding *g, struct err *e)
{
    struct buf made = {0};
    g->inflated = true;
    if (decode_is_latin1_gzip(g->d->json)) {
        int r = decode_latin1(g->d->json, &made, e);
        if (r != 0) {
            buf_free(&made);
            return r;
        }
        take(g, &made);
    }
    int r = decode_gzip(g->d->json, g->how->decoded_bytes_max, &made, e);
    if (r == 0 && decode_is_gzip(buf_slice(&made))) {
        r = err_set(e, ERR_INVALID_ENCODING, "gzip: the body is compressed twice");
    }
    if (r == 0) {
        take(g, &made);
    }
    buf_free(&made);
    return r;
}

static int run_deflate(struct decoding *g, struct err *e)
{
    struct buf made = {0};
    g->inflated = true;
    int r = decode_deflate(g->d->json, g->how->decoded_bytes_max, &made, e);
    if (r == 0) {
        take(g, &made);
    }
    buf_free(&made);
    return r;
}

/* *undone: it was no base64 after all, and nobody had said that it is. */
static int run_base64(struct decoding *g, bool *undone, struct err *e)
{
    struct buf made = {0};
    bool hinted = g->hint == CODING_BASE64;
    g->base64_left--;
    int r = decode_base64(g->d->json, &made, e);
    *undone = r == ERR_INVALID_ENCODING && !hinted;
    if (*undone) {
        r = 0;
    } else if (r == 0) {
        take(g, &made);
        /* A hint is about one layer; what is inside speaks for itself. */
        g->hint = hinted ? CODING_NONE : g->hint;
    }
    buf_free(&made);
    return r;
}

/* ---- the order ---- */

/* JSON is told by its first character; a byte order mark and white space may be before it. */
static bool is_json(struct slice text)
{
    if (slice_starts(text, SLICE("\xef\xbb\xbf"))) {
        text = slice_from(text, 3);
    }
    text = trim(text);
    return text.len > 0 && (text.ptr[0] == '{' || text.ptr[0] == '[');
}

static int by_content(struct decoding *g, struct err *e)
{
    bool declared = decode_name_is(trim(before(g->how->content_type, ';')),
                                   "application/x-www-form-urlencoded");
    bool posthog = g->how->mode != DECODE_SEGMENT;
    bool no_base64 = !posthog;
    int r = 0;
    while (r == 0) {
        struct slice text = g->d->json;
        if (text.len == 0 || is_json(text)) {
            return 0;
        }
        if (!g->inflated && (decode_is_gzip(text) || decode_is_latin1_gzip(text))) {
            r = run_gzip(g, e);
        } else if (posthog && !g->formed && !g->from_query && decode_looks_form(text, declared)) {
            r = run_form(g, e);
        } else if (g->hint == CODING_LZ64) {
            return err_set(e, ERR_UNSUPPORTED_MEDIA_TYPE,
                           "compression lz64 (lz-string) is not supported; gzip, base64 and plain "
                           "JSON are");
        } else if (!no_base64 && g->base64_left > 0 &&
                   (g->hint == CODING_BASE64 || decode_looks_base64(text))) {
            r = run_base64(g, &no_base64, e);
        } else if (!g->inflated && g->hint == CODING_GZIP) {
            r = run_gzip(g, e);
        } else if (!g->inflated && g->hint == CODING_DEFLATE) {
            r = run_deflate(g, e);
        } else {
            return 0;
        }
    }
    return r;
}

/* v1 and native: what the header says, and nothing else. */
static int by_header(struct decoding *g, struct err *e)
{
    switch (g->hint) {
    case CODING_GZIP:
        return run_gzip(g, e);
    case CODING_DEFLATE:
        return run_deflate(g, e);
    case CODING_NONE:
        return 0;
    case CODING_LZ64:
    case CODING_BASE64:
    default:
        ensure(false);
        return 0;
    }
}

static int run(struct decoding *g, struct err *e)
{
    const struct decode_request *how = g->how;
    bool strict = how->mode == DECODE_V1 || how->mode == DECODE_PLAIN;
    bool posthog = how->mode == DECODE_POSTHOG || how->mode == DECODE_BASE64_TOO;
    g->from_query = posthog && how->query_data.len > 0;
    g->d->json = g->from_query ? how->query_data : how->body;
    int r = find_hint(g, e);
    if (r == 0 && g->d->json.len == 0) {
        r = err_set(e, ERR_INVALID_ENCODING, "the body is empty");
    }
    if (r == 0) {
        r = strict ? by_header(g, e) : by_content(g, e);
    }
    if (r == 0 && g->d->json.len == 0) {
        r = err_set(e, ERR_INVALID_ENCODING, "the body is empty when it is decoded");
    }
    if (r == 0 && g->d->json.len > how->decoded_bytes_max) {
        r = err_set(e, ERR_BODY_TOO_LARGE, "the body has more than %llu bytes",
                    (unsigned long long)how->decoded_bytes_max);
    }
    return r;
}

int decode_body(const struct decode_request *how, struct decoded *out, struct err *e)
{
    struct decoding g = {
        .how = how,
        .d = out,
        .base64_left = how->mode == DECODE_BASE64_TOO ? 2 : 1,
    };
    *out = (struct decoded){0};
    int r = run(&g, e);
    if (r != 0) {
        out->json = (struct slice){0};
    }
    return r;
}

void decoded_free(struct decoded *d)
{
    buf_free(&d->owned);
    *d = (struct decoded){0};
}
