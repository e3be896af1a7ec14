/* answer: what goes back to clients of the artifact door.
 *
 * The thread of a request fills a struct outcome; the loop makes headers of it. Texts of failures
 * of the disk name local paths: they go to the log only, with the upload's id shortened (who knows
 * an id may read and resume the upload). */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "door/artifact/internal.h"
#include "os/os.h"

void outcome_fail(struct outcome *out, int code, const char *text)
{
    ensure(code < 0);
    out->code = code;
    (void)snprintf(out->text, sizeof out->text, "%s", text);
}

void outcome_low_space(struct outcome *out, const char *text)
{
    outcome_fail(out, ERR_LOW_SPACE, text);
    out->status = out->low_space_status;
    out->retry_after_s = LOW_SPACE_RETRY_S;
    metric_add(METRIC_ARTIFACT_LOW_SPACE, 1);
}

void outcome_broken(struct outcome *out, const char *id, const struct err *e, const char *text)
{
    metric_add(METRIC_ARTIFACT_FAILURES, 1);
    log_line((enum log_level)err_level(e->code), "artifact", "upload %.8s: %s", id, e->text);
    if (e->code == ERR_NO_SPACE) {
        outcome_low_space(out, "there is no space for it now");
    } else {
        outcome_fail(out, ERR_INTERNAL_ERROR, text);
    }
}

void outcome_no_room(struct outcome *out, const char *id, const struct err *e)
{
    if (e->code == ERR_LOW_SPACE) {
        outcome_low_space(out, e->text);
        return;
    }
    log_line(LOG_ERROR, "artifact", "upload %.8s: %s", id, e->text);
    outcome_low_space(out, "the free space of this server cannot be read");
    out->status = 503;
}

void outcome_accept(struct outcome *out, const struct receipt *r)
{
    if (&out->receipt != r) {
        out->receipt = *r;
    }
    out->accepted = true;
    out->has_offset = true;
    out->offset = r->size_bytes;
    out->expires_ms = 0;
}

int64_t expires_from(const struct artifact *a, int64_t activity_ms)
{
    /* 0: it cannot be read now. The time is not over then, whatever it is. */
    int64_t from_ms = activity_ms > 0 ? activity_ms : (int64_t)os_clock_real_ms();
    return from_ms + (int64_t)a->options.retention_ms;
}

void http_date_text(char out[HTTP_DATE_LEN + 1], int64_t ms)
{
    static const char days[] = "SunMonTueWedThuFriSat";
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    const int64_t year_9999 = INT64_C(253402300799);
    int64_t seconds = ms / 1000;
    time_t at = (time_t)(seconds < 0 ? 0 : seconds > year_9999 ? year_9999 : seconds);
    struct tm t;
    char text[64];
    ensure(gmtime_r(&at, &t) != NULL);
    int n =
        snprintf(text, sizeof text, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT", days + t.tm_wday * 3,
                 t.tm_mday, months + t.tm_mon * 3, t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
    ensure(n == HTTP_DATE_LEN);
    memcpy(out, text, HTTP_DATE_LEN + 1);
}

static void add_number(struct http_request *req, const char *name, uint64_t v)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)v);
    http_add_header(req, name, slice_cstr(text));
}

/* Artifact-Receipt: base64url without padding (artifacts.md 5.11). */
static void add_receipt(struct http_request *req, const struct receipt *r)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    char out[RECEIPT_BYTES_MAX / 3 * 4 + 8];
    size_t n = 0;
    ensure(r->json_len <= RECEIPT_BYTES_MAX);
    for (size_t i = 0; i < r->json_len; i += 3) {
        size_t have = r->json_len - i < 3 ? r->json_len - i : 3;
        uint32_t bits = (uint32_t)(unsigned char)r->json[i] << 16;
        bits |= have > 1 ? (uint32_t)(unsigned char)r->json[i + 1] << 8 : 0;
        bits |= have > 2 ? (uint32_t)(unsigned char)r->json[i + 2] : 0;
        for (size_t k = 0; k <= have; k++) {
            out[n++] = digits[bits >> (18 - 6 * k) & 63];
        }
    }
    ensure(n <= sizeof out);
    http_add_header(req, "Artifact-Receipt", slice_of(out, n));
}

static void answer_error(struct http_request *req, int code, unsigned status, const char *text)
{
    if (code == ERR_UNSUPPORTED_VERSION) {
        http_add_header(req, "Tus-Version", SLICE(TUS_VERSION));
    }
    if (status != 0) {
        http_answer_error_status(req, status, code, text);
    } else {
        http_answer_error(req, code, text, (struct slice){0});
    }
}

void answer_tus(struct http_request *req, const struct outcome *out, unsigned good)
{
    if (out->has_offset) {
        add_number(req, "Upload-Offset", out->offset);
    }
    if (out->accepted) {
        add_receipt(req, &out->receipt);
    }
    if (out->expires_ms != 0) {
        char date[HTTP_DATE_LEN + 1];
        http_date_text(date, out->expires_ms);
        http_add_header(req, "Upload-Expires", slice_cstr(date));
    }
    if (out->retry_after_s != 0) {
        add_number(req, "Retry-After", out->retry_after_s);
    }
    if (out->code == 0) {
        http_answer(req, good, NULL, (struct slice){0});
    } else {
        answer_error(req, out->code, out->status, out->text);
    }
}

void answer_refuse(struct http_request *req, const struct err *e)
{
    ensure(e->code != 0);
    answer_error(req, e->code, 0, e->text);
}

void answer_method(struct http_request *req, const char *allow)
{
    http_add_header(req, "Allow", slice_cstr(allow));
    http_answer_error(req, ERR_METHOD_NOT_ALLOWED, "this path does not have that method",
                      (struct slice){0});
}
