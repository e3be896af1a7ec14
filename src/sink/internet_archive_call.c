/* internet_archive_call: one request to the Archive, with its redirects.
 *
 * The Archive sends a PUT elsewhere (307) more often than others do, and the keys travel with it: a
 * redirect is followed only over https to archive.org and below it, or, where the endpoint itself
 * is of this machine (tests), to this machine; at most ARCHIVE_HOPS times; and is logged, as
 * scheme, host and port. The request is the same at each place, its body is read again from the
 * start. */
#include <stdio.h>

#include "base/log.h"
#include "sink/internet_archive_internal.h"

#define ARCHIVE_HOPS   5
#define ARCHIVE_DOMAIN "archive.org"
#define CONNECT_MS     30000
#define STALL_MS       60000 /* of a small answer */
#define HEADERS_MORE   64

static bool is_redirect(const struct transfer *t, unsigned status)
{
    return status == 307 || status == 308 || (!t->has_body && (status == 301 || status == 302));
}

static bool is_allowed(const char *from, const char *to)
{
    if (transfer_is_https(to) && transfer_is_within(to, ARCHIVE_DOMAIN)) {
        return true;
    }
    return transfer_is_loopback(from) && transfer_is_loopback(to);
}

/* Replaces *url by where the answer sends us. False: the verdict is there. */
static bool redirect(struct archive *a, const struct net_answer *answer, unsigned hop,
                     struct buf *url)
{
    char place[TRANSFER_PLACE_MAX] = "an unreadable place";
    struct buf to = {0};
    struct slice location = SLICE("");
    bool ok = net_header(answer, "location", &location) &&
              transfer_resolve(url->ptr, location, &to) && transfer_place(to.ptr, place);

    if (!ok || !is_allowed(url->ptr, to.ptr)) {
        buf_free(&to);
        return archive_say(a, ARTIFACT_RETRY, ARTIFACT_FAR_END, 10 * MINUTE_MS,
                           "the keys were not sent there; if it is right, a newer tallyman may "
                           "know the place",
                           "the Archive sends us to %s, which is not followed", place);
    }
    if (hop >= ARCHIVE_HOPS) {
        buf_free(&to);
        return archive_say(a, ARTIFACT_RETRY, ARTIFACT_FAR_END, 10 * MINUTE_MS, "",
                           "the Archive sends us on without end, at last to %s", place);
    }
    log_line(LOG_INFO, "deliver", "the Archive sends us on to %s (%u)", place, answer->status);
    buf_free(url);
    *url = to;
    return true;
}

bool archive_call(struct archive *a, struct transfer *t, struct buf *url, struct net_answer *answer,
                  uint64_t *sent, enum transfer_end *end, struct err *e)
{
    struct net_header header[ARCHIVE_VALUES_MAX + HEADERS_MORE];
    size_t count = t->header_count;

    if (count + 1 > sizeof header / sizeof *header) {
        return archive_say(a, ARTIFACT_PARKED, ARTIFACT_THIS, 0,
                           "use fewer metadata values in the project", "too many metadata values");
    }
    if (count > 0) {
        memcpy(header, t->header, count * sizeof *header);
    }
    header[count] = (struct net_header){"User-Agent", slice_cstr(a->job->endpoints->user_agent)};
    t->header = header;
    t->header_count = count + 1;
    t->connect_ms = CONNECT_MS;
    for (unsigned hop = 0;; hop++) {
        t->url = url->ptr;
        *end = transfer_do(t, answer, sent, e);
        if (*end == TRANSFER_STOPPED) {
            return archive_going_on(a) ||
                   archive_say(a, ARTIFACT_STOPPED, ARTIFACT_THIS, 0, "", "the process ends");
        }
        if (*end != TRANSFER_ANSWERED || !is_redirect(t, answer->status)) {
            return true;
        }
        if (!redirect(a, answer, hop, url)) {
            return false;
        }
        net_answer_free(answer);
    }
}

bool archive_get(struct archive *a, struct buf *url, uint64_t answer_ms, uint64_t bytes_max,
                 enum artifact_scope scope, const char *what, struct net_answer *answer)
{
    struct transfer t = {.method = "GET",
                         .stall_ms = STALL_MS,
                         .answer_ms = answer_ms,
                         .answer_bytes_max = bytes_max,
                         .stopping = a->job->stopping,
                         .ctx = a->job->ctx};
    enum transfer_end end;
    struct err e = {0};
    uint64_t sent;

    *answer = (struct net_answer){0};
    if (!archive_call(a, &t, url, answer, &sent, &end, &e)) {
        return false;
    }
    if (end == TRANSFER_ANSWERED) {
        return true;
    }
    if (end == TRANSFER_UNREACHED) {
        scope = ARTIFACT_FAR_END;
    } else if (end == TRANSFER_NO_MEMORY) {
        scope = ARTIFACT_THIS;
    }
    return archive_say(a, ARTIFACT_RETRY, scope, 0, "", "%s: %s", what, e.text);
}
