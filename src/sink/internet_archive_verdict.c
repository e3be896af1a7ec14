/* internet_archive_verdict: what an answer of the Archive means for a delivery (the tables of
 * spec/internet-archive.md, sections 7 and 8, as one).
 *
 * A row fits when its status (0: any), its code ("": any) and its words (somewhere in message or
 * resource, whatever their case; "": any) do; the first that fits decides. So the special stands
 * above the general, and the last row takes whatever is left.
 *
 * What is behind the outcomes:
 *   503 is not always a matter of time: "appears to be spam" needs a letter to the Archive, and
 *   sending again would make it worse. A ration of one item must not stop the others, a full
 *   archive must stop all. A reason that nobody has seen yet counts as a ration, and is told.
 *   403 has many reasons. Where its words do not tell which, the item does: one that exists and
 *   takes nothing from us is somebody else's. Anywhere else nobody knows: it may be the account,
 *   the project's settings or this package. The project waits an hour (other projects go on, with
 *   the same keys too), and a package that is refused so at its try REFUSALS_MAX or later,
 *   however the tries before it ended, is parked with the text, so that it stands in nobody's way.
 *   Only codes that speak of keys or of the account hold the key file. */
#include <stdio.h>

#include "sink/internet_archive_internal.h"

#define SOON         0 /* the runner's backoff */
#define REFUSALS_MAX 3 /* tries, after which a reason that we do not know parks */

enum does {
    SAYS,   /* the row is the verdict */
    REHASH, /* the local bytes decide */
    OWNER   /* whether the item was there decides */
};

#define W_SPAM \
    "write to info@archive.org with the whole text; when they have answered: tallyman park retry"
#define W_KEYS "check the two lines of the key file against https://archive.org/account/s3.php"
#define W_PLAN ARCHIVE_WAY_OUT_PLAN
#define W_TAKEN                                                                                 \
    "the identifier is taken: give the project another; packages keep the one they were built " \
    "with"
#define W_DARK  "ask info@archive.org why; or give the project another identifier"
#define W_RIGHT "get the right to add to the collection, or set another for the project"
#define W_SIZE  "send what is left to another item: an identifier with the date or object in it"
#define W_BUG   "a fault of tallyman or of a proxy between: report the text"
#define W_ODD   "read the text; when the cause is gone: tallyman park retry"

/* X(status, code, words, does, outcome, scope, wait_ms, what, way_out) */
#define ANSWERS(X)                                                                                 \
    X(503, "", "appears to be spam", SAYS, PARKED, ITEM, 0, "the Archive takes the item for spam", \
      W_SPAM)                                                                                      \
    X(503, "SlowDown", "total_tasks_queued", SAYS, RETRY, FAR_END, 10 * MINUTE_MS,                 \
      "the whole Archive is busy", "")                                                             \
    X(503, "SlowDown", "global_limit", SAYS, RETRY, FAR_END, 10 * MINUTE_MS,                       \
      "the whole Archive is busy", "")                                                             \
    X(503, "SlowDown", "accesskey_tasks_queued", SAYS, RETRY, KEYS, 10 * MINUTE_MS,                \
      "our account has too many tasks at the Archive", "")                                         \
    X(503, "SlowDown", "bucket_tasks_queued", SAYS, RETRY, ITEM, 10 * MINUTE_MS,                   \
      "the item has too many tasks at the Archive", "")                                            \
    X(503, "SlowDown", "", SAYS, RETRY, FAR_END, 10 * MINUTE_MS,                                   \
      "the Archive asks for fewer requests, for a reason that we do not know", "")                 \
    X(503, "", "", SAYS, RETRY, FAR_END, MINUTE_MS, "the Archive takes no uploads now", "")        \
    X(502, "", "", SAYS, RETRY, FAR_END, MINUTE_MS, "the Archive is not well", "")                 \
    X(504, "", "", SAYS, RETRY, FAR_END, MINUTE_MS, "the Archive is not well", "")                 \
    X(400, "BadDigest", "", REHASH, RETRY, THIS, SOON, "the bytes changed on the way", "")         \
    X(400, "IncompleteBody", "", SAYS, RETRY, THIS, SOON, "the connection was troubled", "")       \
    X(400, "RequestTimeout", "", SAYS, RETRY, THIS, SOON, "the connection was troubled", "")       \
    X(400, "InvalidBucketName", "", SAYS, PARKED, THIS, 0,                                         \
      "the Archive does not take the item's identifier", W_PLAN)                                   \
    X(400, "KeyTooLong", "", SAYS, PARKED, THIS, 0, "the file's name is too long", W_PLAN)         \
    X(400, "MetadataTooLarge", "", SAYS, PARKED, THIS, 0, "the metadata is too long", W_PLAN)      \
    X(400, "EntityTooLarge", "", SAYS, PARKED, THIS, 0, "the file is too large", W_SIZE)           \
    X(400, "InvalidArgument", "", SAYS, PARKED, THIS, 0, "the Archive does not take the request",  \
      W_PLAN)                                                                                      \
    X(401, "", "", SAYS, RETRY, KEYS, 60 * MINUTE_MS, "the Archive does not take the keys",        \
      W_KEYS)                                                                                      \
    X(403, "InvalidAccessKeyId", "", SAYS, RETRY, KEYS, 60 * MINUTE_MS,                            \
      "the Archive does not know the access key", W_KEYS)                                          \
    X(403, "SignatureDoesNotMatch", "", SAYS, RETRY, KEYS, 60 * MINUTE_MS,                         \
      "the secret does not fit the access key", W_KEYS)                                            \
    X(403, "AccountProblem", "", SAYS, RETRY, KEYS, 60 * MINUTE_MS,                                \
      "something is wrong with the account at the Archive", W_KEYS)                                \
    X(403, "", "appears to be spam", SAYS, PARKED, ITEM, 0, "the Archive takes the item for spam", \
      W_SPAM)                                                                                      \
    X(403, "", "collection", SAYS, PARKED, PLACE, 0, "the account may not add to the collection",  \
      W_RIGHT)                                                                                     \
    X(403, "", "write to this item", OWNER, PARKED, ITEM, 0, "the item is somebody else's",        \
      W_TAKEN)                                                                                     \
    X(403, "", "is dark", SAYS, PARKED, ITEM, 0, "the Archive has taken the item out of sight",    \
      W_DARK)                                                                                      \
    X(403, "", "exceed", SAYS, PARKED, ITEM, 0, "the item would be too large", W_SIZE)             \
    X(403, "", "size limit", SAYS, PARKED, ITEM, 0, "the item would be too large", W_SIZE)         \
    X(403, "", "item size", SAYS, PARKED, ITEM, 0, "the item would be too large", W_SIZE)          \
    X(403, "", "1099511627776", SAYS, PARKED, ITEM, 0, "the item would be too large", W_SIZE)      \
    X(403, "", "too large", SAYS, PARKED, ITEM, 0, "the item would be too large", W_SIZE)          \
    X(403, "", "", OWNER, RETRY, PLACE, 60 * MINUTE_MS,                                            \
      "the Archive refuses it, in words that we do not know", W_ODD)                               \
    X(404, "NoSuchBucket", "", SAYS, RETRY, THIS, SOON, "the item is not made yet", "")            \
    X(409, "BucketAlreadyExists", "", OWNER, RETRY, THIS, SOON,                                    \
      "the item has been made meanwhile", "")                                                      \
    X(409, "", "", SAYS, RETRY, THIS, SOON, "the item is being changed", "")                       \
    X(411, "", "", SAYS, PARKED, THIS, 0, "the Archive misses the length", W_BUG)                  \
    X(413, "", "", SAYS, PARKED, THIS, 0, "the file is too large", W_SIZE)                         \
    X(0, "", "", SAYS, RETRY, THIS, SOON, "the Archive did not take the file", "")

struct answer {
    unsigned status;
    const char *code, *words;
    enum does does;
    enum artifact_outcome outcome;
    enum artifact_scope scope;
    uint64_t wait_ms;
    const char *what, *way_out;
};

static const struct answer answers[] = {
#define X(status, code, words, does, outcome, scope, wait_ms, what, way_out) \
    {status, code, words, does, ARTIFACT_##outcome, ARTIFACT_##scope, wait_ms, what, way_out},
    ANSWERS(X)
#undef X
};

#define ANSWER_COUNT (sizeof answers / sizeof *answers)

static bool has_words(const struct archive_error *said, const char *words)
{
    return words[0] == '\0' || strcasestr(said->resource, words) != NULL ||
           strcasestr(said->message, words) != NULL;
}

static const struct answer *row_of(unsigned status, const struct archive_error *said)
{
    for (size_t i = 0; i < ANSWER_COUNT; i++) {
        const struct answer *row = &answers[i];
        if ((row->status == 0 || row->status == status) &&
            (row->code[0] == '\0' || strcmp(row->code, said->code) == 0) &&
            has_words(said, row->words)) {
            return row;
        }
    }
    return &answers[ANSWER_COUNT - 1];
}

/* What it said, as one text: nobody can look it up later. */
static void full_text(char *out, size_t size, unsigned status, const struct archive_error *said)
{
    (void)snprintf(out, size, "%u%s%s%s%s%s%s", status, said->code[0] != '\0' ? " " : "",
                   said->code, said->message[0] != '\0' ? ": " : "", said->message,
                   said->resource[0] != '\0' ? " " : "", said->resource);
}

/* 400 with a code that is not in the table: the request is at fault, and stays as it is. */
static bool is_our_fault(unsigned status, const struct archive_error *said,
                         const struct answer *row)
{
    return status == 400 && said->code[0] != '\0' && row == &answers[ANSWER_COUNT - 1];
}

static void owner_decides(struct archive *a, const struct answer *row, const char *text)
{
    if (a->item.exists && !a->put) {
        (void)archive_say(a, ARTIFACT_PARKED, ARTIFACT_ITEM, 0, W_TAKEN,
                          "the item %s is somebody else's%s%s (%s)", a->job->identifier,
                          a->item.uploader[0] != '\0' ? ": " : "", a->item.uploader, text);
    } else if (a->put) {
        (void)archive_say(a, ARTIFACT_PARKED, ARTIFACT_THIS, 0, W_ODD,
                          "the Archive took one file of the package and refuses the other (%s)",
                          text);
    } else if (row->scope == ARTIFACT_PLACE && a->job->attempt >= REFUSALS_MAX) {
        (void)archive_say(a, ARTIFACT_PARKED, ARTIFACT_THIS, 0, W_ODD, "%s, at try %u (%s)",
                          row->what, a->job->attempt, text);
    } else {
        (void)archive_say(a, row->outcome, row->scope, row->wait_ms, row->way_out, "%s (%s)",
                          row->what, text);
    }
}

bool archive_judge(struct archive *a, unsigned status, const struct archive_error *said)
{
    const struct answer *row = row_of(status, said);
    char text[sizeof *said + 64];

    full_text(text, sizeof text, status, said);
    if (row->does == OWNER) {
        owner_decides(a, row, text);
    } else if (is_our_fault(status, said, row)) {
        (void)archive_say(a, ARTIFACT_PARKED, ARTIFACT_THIS, 0, W_PLAN,
                          "the Archive does not take the request (%s)", text);
    } else {
        (void)archive_say(a, row->outcome, row->scope, row->wait_ms, row->way_out, "%s (%s)",
                          row->what, text);
    }
    return row->does == REHASH;
}

void archive_judge_ration(struct archive *a, const struct archive_error *said)
{
    const struct answer *row = row_of(503, said);

    (void)archive_say(a, row->outcome, row->scope, row->wait_ms, row->way_out,
                      "%s (asked before sending: %s)", row->what, said->resource);
}
