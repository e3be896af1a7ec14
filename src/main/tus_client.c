/* The conversation with the server about one upload.
 *
 * Create: POST; the answer names the upload. Waited out are 429, 503, what a server or a proxy in
 * trouble says (500, 502, 504, 423), and a lost connection: at worst an empty upload is left, which
 * expires, and nobody has its id.
 *
 * Send: PATCH with all that is missing; after anything but a final answer HEAD, and on from the
 * offset that the server gives, which may be less than was sent: only what it says it holds counts.
 *
 *   answer to HEAD          answer to PATCH
 *   200  go on from there   204  receipt in the header, else by GET; or on, if it took less
 *   404, 410                404, 410   a receipt may exist all the same: GET; else it is gone
 *   408 409 423 429 500 502 503 504 and no answer: wait, HEAD (500 after all bytes: GET first)
 *   else: failed            422: refused, the bytes are not what was announced; else: failed
 *
 * Waiting: Retry-After as it says, else growing and with chance in it, so that many clients do not
 * come back together. All waits and failed tries since the offset last rose are bounded by retry_s:
 * a line that breaks every minute but moves bytes is never given up.
 *
 * The receipt counts only if it is for this object, size and checksum. Failures are answers. */
#include "main/tus_client.h"

#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "main/client_internal.h"
#include "main/interrupt.h"
#include "main/output.h"
#include "main/tus_client_internal.h"
#include "os/os.h"

#define NOTE_MS 1500 /* longer waits are announced */

#define TUS_HEADER "Tus-Resumable: 1.0.0"

enum step { ACCEPTED, AGAIN, AT_ONCE, GONE, REFUSED, FAILED, STOPPED };

/* ---- what an answer means ---- */

static bool worth_waiting(const struct tus_answer *a)
{
    static const unsigned statuses[] = {408, 409, 423, 429, 500, 502, 503, 504};
    const struct slice body = buf_slice(&a->body);
    if (slice_starts(body, SLICE("ERR_NO_ISSUER"))) {
        return false; /* somebody has to change the configuration first */
    }
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        if (a->status == statuses[i]) {
            return true;
        }
    }
    return a->status == 400 && slice_starts(body, SLICE("ERR_UPLOAD_INTERRUPTED"));
}

/* "SERVER answered 503 to PATCH: ERR_X: text"; and how long it asks to wait. */
static void describe(struct tus_upload *u, const char *method, const struct tus_answer *a)
{
    char line[200];
    struct slice body = buf_slice(&a->body);
    u->lost = false;
    u->retry_after_ms = a->has_retry_after ? a->retry_after_ms : UINT64_MAX;
    if (body.len > 0 && body.ptr[0] == '{') { /* the API's errors are JSON, those of tus text */
        const struct client_answer answer = {.status = a->status, .body = a->body};
        int r = client_refusal(u->client, &answer, &u->err);
        ensure(r == ERR_REFUSED);
        return;
    }
    tus_first_line(body, line, sizeof line);
    (void)err_set(&u->err, ERR_REFUSED, "%.100s answered %u to %s%s%s", client_where(u->client),
                  a->status, method, line[0] != '\0' ? ": " : "", line);
}

/* What is to be done about a try without an answer; u->err says what happened. */
static enum step without_answer(struct tus_upload *u, enum tus_outcome out)
{
    u->lost = true;
    u->retry_after_ms = UINT64_MAX;
    switch (out) {
    case TUS_LOST:
        return AGAIN;
    case TUS_ABSENT: /* a server that restarts comes back; one that was never there is a mistake */
        return u->client->answered ? AGAIN : FAILED;
    case TUS_INTERRUPTED:
        return STOPPED;
    case TUS_BROKEN:
    case TUS_UNREADABLE:
    case TUS_NO_MEMORY:
    case TUS_ANSWERED:
        break;
    }
    return FAILED;
}

static void note_expiry(struct tus_upload *u, const struct tus_answer *a)
{
    if (a->expires[0] != '\0') {
        memcpy(u->expires, a->expires, sizeof u->expires);
    }
}

/* The server holds this many; more than before is progress. */
static void note_offset(struct tus_upload *u, uint64_t offset)
{
    if (offset > u->offset) {
        u->offset = offset;
        u->tries = 0;
        u->failing_since_ns = 0;
    }
}

/* Waits before the next try. AT_ONCE: now; FAILED: it has lasted too long; STOPPED. Time in which
 * bytes moved is no failing: a line that breaks after an hour of sending is tried again. */
static enum step wait_again(struct tus_upload *u, uint64_t started_ns, uint64_t moved_ns)
{
    uint32_t random = 0;
    (void)os_random(&random, sizeof random); /* without: the shortest of the waits */
    if (u->failing_since_ns == 0) {
        u->failing_since_ns = moved_ns > started_ns ? moved_ns : started_ns;
    }
    u->tries++;
    /* Retry-After: 0 says "soon", and is not taken for "as fast as you can". */
    bool soon = u->lost || u->retry_after_ms == 0;
    bool asked = u->retry_after_ms > 0 && u->retry_after_ms != UINT64_MAX;
    uint64_t pause = asked ? u->retry_after_ms : tus_wait_ms(u->tries, soon, random);
    uint64_t spent_ms = (os_clock_mono_ns() - u->failing_since_ns) / 1000000;
    if (spent_ms + pause > u->client->retry_s * 1000) {
        return FAILED;
    }
    if (pause >= NOTE_MS) {
        output_error(u->client->verb, "%s; trying again in %llu s", u->err.text,
                     (unsigned long long)((pause + 500) / 1000));
    }
    if (!interrupt_pause_ms(pause)) {
        (void)err_set(&u->err, ERR_REFUSED, "stopped");
        return STOPPED;
    }
    return AT_ONCE;
}

/* ---- the receipt ---- */

static enum step take_receipt(struct tus_upload *u, struct slice json)
{
    return tus_receipt_take(json, &u->session, &u->receipt, &u->err) == 0 ? ACCEPTED : FAILED;
}

/* From the header of an answer that has one. */
static enum step take_receipt_header(struct tus_upload *u, const struct tus_answer *a)
{
    struct buf json;
    buf_init(&json, TUS_RECEIPT_MAX);
    enum step step = FAILED;
    if (tus_base64_decode(buf_slice(&a->receipt), &json)) {
        step = take_receipt(u, buf_slice(&json));
    } else {
        (void)err_set(&u->err, ERR_REFUSED, "the header Artifact-Receipt cannot be read");
    }
    buf_free(&json);
    return step;
}

/* GET of the receipt. ACCEPTED, AGAIN, REFUSED (410 after a mismatch), STOPPED; FAILED for all
 * other answers: a->status says which. */
static enum step fetch_receipt(struct tus_upload *u, struct tus_answer *a)
{
    static const char *const headers[] = {"Accept: application/json", NULL};
    struct buf url;
    buf_init(&url, 0);
    buf_put_cstr(&url, u->client->base);
    buf_put_cstr(&url, "/api/v1/receipts/");
    buf_put_cstr(&url, strrchr(u->session.upload_url, '/') + 1); /* escaped already */
    buf_put_char(&url, '\0');
    if (url.failed) {
        (void)err_set(&u->err, ERR_NO_MEMORY, "out of memory");
        *a = (struct tus_answer){0};
        return FAILED;
    }
    url.ptr[strcspn(url.ptr, "?")] = '\0'; /* of the upload, not of the receipt */
    const struct tus_request req = {.method = TUS_GET, .url = url.ptr, .headers = headers};
    enum tus_outcome out = tus_exchange(u->client, &req, a, &u->err);
    buf_free(&url);
    if (out != TUS_ANSWERED) {
        return without_answer(u, out);
    }
    if (a->status == 200) {
        return take_receipt(u, buf_slice(&a->body));
    }
    describe(u, "GET of the receipt", a);
    const struct slice body = buf_slice(&a->body);
    if (a->status == 410 && body.len > 0 &&
        memmem(body.ptr, body.len, "mismatch", sizeof "mismatch" - 1) != NULL) {
        return REFUSED;
    }
    return a->status != 409 && worth_waiting(a) ? AGAIN : FAILED;
}

/* The upload is unknown. It may be accepted and its bytes released: then the receipt is there. */
static enum step after_gone(struct tus_upload *u, struct tus_answer *receipt)
{
    enum step step = fetch_receipt(u, receipt);
    bool none = receipt->status == 404 || receipt->status == 409 || receipt->status == 410;
    return step == FAILED && none ? GONE : step;
}

/* ---- sending ---- */

static enum step judge_patch(struct tus_upload *u, const struct tus_answer *a,
                             struct tus_answer *receipt)
{
    note_expiry(u, a);
    if (a->status == 204 || a->status == 200) {
        if (a->receipt.len > 0) {
            return take_receipt_header(u, a);
        }
        if (a->has_offset && a->offset < u->content->size) {
            bool more = a->offset > u->offset;
            note_offset(u, a->offset);
            describe(u, "PATCH, and took only a part of it", a);
            return more ? AT_ONCE : AGAIN;
        }
        return fetch_receipt(u, receipt);
    }
    describe(u, "PATCH", a);
    if (a->status == 417 && !u->no_expect) { /* libcurl has not got over it by itself */
        u->no_expect = true;
        return AT_ONCE;
    }
    if (a->status == 422) {
        return REFUSED;
    }
    if (a->status == 404 || a->status == 410) {
        return after_gone(u, receipt);
    }
    if (a->status == 500 && a->all_sent) { /* the receipt may have been made before that */
        enum step step = fetch_receipt(u, receipt);
        if (step == ACCEPTED || step == STOPPED) {
            return step;
        }
        describe(u, "PATCH", a);
    }
    return worth_waiting(a) ? AGAIN : FAILED;
}

/* PATCH from offset to the end; with nothing left it asks the server to finish. */
static enum step send_rest(struct tus_upload *u, uint64_t offset, struct tus_answer *a,
                           struct tus_answer *receipt)
{
    char line[64];
    (void)snprintf(line, sizeof line, "Upload-Offset: %llu", (unsigned long long)offset);
    const char *const headers[] = {TUS_HEADER, "Content-Type: application/offset+octet-stream",
                                   line, u->no_expect ? "Expect:" : NULL, NULL};
    const struct tus_request req = {.method = TUS_PATCH,
                                    .url = u->session.upload_url,
                                    .headers = headers,
                                    .content = u->content,
                                    .offset = offset};
    ensure(offset <= u->content->size);
    enum tus_outcome out = tus_exchange(u->client, &req, a, &u->err);
    return out == TUS_ANSWERED ? judge_patch(u, a, receipt) : without_answer(u, out);
}

/* HEAD says that everything is there: the receipt, or a PATCH of nothing that finishes it. */
static enum step finish(struct tus_upload *u, struct tus_answer *a, struct tus_answer *receipt)
{
    enum step step = fetch_receipt(u, receipt);
    if (step != FAILED || receipt->status != 409) {
        return step;
    }
    tus_answer_free(a);
    tus_answer_free(receipt);
    return send_rest(u, u->content->size, a, receipt);
}

static enum step judge_head(struct tus_upload *u, struct tus_answer *a, struct tus_answer *receipt)
{
    note_expiry(u, a);
    if (a->status == 404 || a->status == 410) {
        describe(u, "HEAD", a);
        return after_gone(u, receipt);
    }
    if (a->status != 200) {
        describe(u, "HEAD", a);
        return worth_waiting(a) ? AGAIN : FAILED;
    }
    if (!a->has_offset || !a->has_length || a->length != u->content->size ||
        a->offset > u->content->size) {
        (void)err_set(&u->err, ERR_REFUSED, "%.100s holds another upload under this id",
                      client_where(u->client));
        return FAILED;
    }
    if (a->receipt.len > 0) {
        return take_receipt_header(u, a);
    }
    note_offset(u, a->offset);
    if (a->offset == u->content->size) {
        return finish(u, a, receipt);
    }
    uint64_t offset = a->offset;
    tus_answer_free(a);
    return send_rest(u, offset, a, receipt);
}

/* One round: HEAD unless it is new, and PATCH. *a is the last answer to either. */
static enum step one_round(struct tus_upload *u, struct tus_answer *a, struct tus_answer *receipt)
{
    static const char *const headers[] = {TUS_HEADER, NULL};
    const struct tus_request req = {
        .method = TUS_HEAD, .url = u->session.upload_url, .headers = headers};
    if (u->fresh) {
        u->fresh = false;
        return send_rest(u, 0, a, receipt);
    }
    enum tus_outcome out = tus_exchange(u->client, &req, a, &u->err);
    return out == TUS_ANSWERED ? judge_head(u, a, receipt) : without_answer(u, out);
}

static enum tus_end end_of(enum step step)
{
    switch (step) {
    case ACCEPTED:
        return TUS_ACCEPTED;
    case GONE:
        return TUS_GONE;
    case REFUSED:
        return TUS_REFUSED;
    case STOPPED:
        return TUS_STOPPED;
    case AGAIN:
    case AT_ONCE:
    case FAILED:
        break;
    }
    return TUS_FAILED;
}

enum tus_end tus_send(struct tus_upload *u)
{
    ensure(u->content->size == u->session.size_bytes);
    for (;;) {
        struct tus_answer answer = {0};
        struct tus_answer receipt = {0};
        uint64_t started_ns = os_clock_mono_ns();
        enum step step = one_round(u, &answer, &receipt);
        step = step == AGAIN ? wait_again(u, started_ns, answer.moved_ns) : step;
        tus_answer_free(&answer);
        tus_answer_free(&receipt);
        if (step != AT_ONCE) {
            return end_of(step);
        }
    }
}

/* ---- creating ---- */

static void put_metadata(struct buf *out, const struct tus_session *s)
{
    buf_put_cstr(out, "Upload-Metadata: project ");
    tus_put_base64(out, slice_cstr(s->project));
    buf_put_cstr(out, ",checksum ");
    tus_put_base64(out, slice_cstr(s->checksum));
    if (s->filename[0] != '\0') {
        buf_put_cstr(out, ",filename ");
        tus_put_base64(out, slice_cstr(s->filename));
    }
    buf_put_char(out, '\0');
}

static enum step judge_created(struct tus_upload *u, const char *url, const struct tus_answer *a)
{
    note_expiry(u, a);
    if (a->status == 201) {
        bool good = tus_resolve(url, a->location, u->client->socket_path != NULL,
                                u->session.upload_url, &u->err) == 0;
        bool named = good && tus_object_id(u->session.upload_url, u->session.object_id);
        return named ? ACCEPTED : FAILED;
    }
    describe(u, "POST", a);
    return worth_waiting(a) ? AGAIN : FAILED;
}

static enum step create_once(struct tus_upload *u, const char *url, const char *const *headers,
                             struct tus_answer *a)
{
    const struct tus_request req = {.method = TUS_POST, .url = url, .headers = headers};
    enum tus_outcome out = tus_exchange(u->client, &req, a, &u->err);
    return out == TUS_ANSWERED ? judge_created(u, url, a) : without_answer(u, out);
}

enum tus_end tus_create(struct tus_upload *u)
{
    char length[64];
    struct buf metadata;
    struct buf url;
    enum step step = FAILED;
    buf_init(&metadata, 0);
    buf_init(&url, 0);
    put_metadata(&metadata, &u->session);
    buf_printf(&url, "%s/files/", u->client->base);
    buf_put_char(&url, '\0');
    (void)snprintf(length, sizeof length, "Upload-Length: %llu",
                   (unsigned long long)u->session.size_bytes);
    if (metadata.failed || url.failed) {
        (void)err_set(&u->err, ERR_NO_MEMORY, "out of memory");
    } else {
        const char *const headers[] = {TUS_HEADER, length, metadata.ptr, NULL};
        do {
            struct tus_answer answer;
            uint64_t started_ns = os_clock_mono_ns();
            step = create_once(u, url.ptr, headers, &answer);
            step = step == AGAIN ? wait_again(u, started_ns, answer.moved_ns) : step;
            tus_answer_free(&answer);
        } while (step == AT_ONCE);
    }
    buf_free(&metadata);
    buf_free(&url);
    u->fresh = step == ACCEPTED;
    u->offset = 0;
    u->tries = 0;
    u->failing_since_ns = 0;
    return end_of(step);
}

int tus_session_place(struct tus_session *s, const struct client *c, bool moved, struct err *e)
{
    if (tus_same_origin(s->upload_url, c->base)) {
        return 0;
    }
    const char *segment = strrchr(s->upload_url, '/');
    if (!moved || segment == NULL) {
        return err_set(e, ERR_REFUSED, "the session's upload is not on %.100s", client_where(c));
    }
    char url[TUS_URL_MAX];
    int n = snprintf(url, sizeof url, "%s/files%s", c->base, segment);
    if (n >= (int)sizeof url) {
        return err_set(e, ERR_REFUSED, "--url: is too long");
    }
    memcpy(s->upload_url, url, (size_t)n + 1);
    return 0;
}
