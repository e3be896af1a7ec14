/* internet_archive: what is sent, in which order and with which words; what each answer means; and
 * that nothing is replaced, sent twice or told of the keys. */
#include "sink/internet_archive.h"

#include <sys/stat.h>

#include "sink/internet_archive_internal.h"
#include "tests/unit/sink/archive_kit.h"

#define LARGE   (7u * ARTIFACT_PIECE_BYTES + 17)
#define ACCESS  "AKeyOfOurs"
#define SECRET  "TheSecretOfIt"
#define ITEM    "tallyman-test-item"
#define PAYLOAD "0123456789abcdef0123456789abcdef-a.warc.zst"
#define MANIF   "0123456789abcdef0123456789abcdef-a.manifest.jsonl"

struct world {
    struct fake *fake;
    char dir[64], large[100], small[100], keys[100];
    char md5[2][MD5_HEX_LEN + 1], sha1[2][SHA1_HEX_LEN + 1];
    struct artifact_file file[2];
    struct artifact_endpoints to;
    struct artifact_job job;
    struct artifact_verdict v;
    atomic_uint asked; /* stopping */
    unsigned stop_at;  /* 0: never */
    uint64_t progress;
    unsigned char piece[ARTIFACT_PIECE_BYTES];
};

static bool stopping(void *ctx)
{
    struct world *w = ctx;
    return atomic_fetch_add(&w->asked, 1) + 1 >= w->stop_at && w->stop_at != 0;
}

static void progress(void *ctx, uint64_t sent, const char *file)
{
    struct world *w = ctx;
    assert_true(strcmp(file, PAYLOAD) == 0 || strcmp(file, MANIF) == 0);
    w->progress = sent;
}

static void write_file(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, 0600), 0);
}

static void digests(const void *p, size_t n, char md5_hex[33], char sha1_hex[41])
{
    struct md5 m;
    struct sha1 s;
    uint8_t out[SHA1_LEN];
    md5_start(&m);
    md5_add(&m, p, n);
    md5_end(&m, out);
    hex_encode(md5_hex, out, MD5_LEN);
    sha1_start(&s);
    sha1_add(&s, p, n);
    sha1_end(&s, out);
    hex_encode(sha1_hex, out, SHA1_LEN);
}

static void make_files(struct world *w)
{
    static const char small[] = "{\"manifest\":1}\n";
    unsigned char *large = malloc(LARGE);
    assert_non_null(large);
    for (size_t i = 0; i < LARGE; i++) {
        large[i] = (unsigned char)(i * 7 + (i >> 11));
    }
    (void)snprintf(w->large, sizeof w->large, "%s/large", w->dir);
    (void)snprintf(w->small, sizeof w->small, "%s/small", w->dir);
    (void)snprintf(w->keys, sizeof w->keys, "%s/keys", w->dir);
    write_file(w->large, large, LARGE);
    write_file(w->small, small, sizeof small - 1);
    write_file(w->keys, ACCESS "\n" SECRET "\n", strlen(ACCESS "\n" SECRET "\n"));
    digests(large, LARGE, w->md5[0], w->sha1[0]);
    digests(small, sizeof small - 1, w->md5[1], w->sha1[1]);
    free(large);
    w->file[0] = (struct artifact_file){PAYLOAD, w->large, LARGE, w->md5[0], w->sha1[0]};
    w->file[1] = (struct artifact_file){MANIF, w->small, sizeof small - 1, w->md5[1], w->sha1[1]};
}

static struct world *world_new(void)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->fake = fake_start();
    (void)snprintf(w->dir, sizeof w->dir, "/tmp/test_archive.XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    make_files(w);
    w->to = (struct artifact_endpoints){.archive_s3 = w->fake->raw.url,
                                        .archive_metadata = w->fake->raw.url,
                                        .answer_ms = 20000,
                                        .stall_ms = 20000,
                                        .user_agent = "tallyman/0 (+http://us)"};
    w->job = (struct artifact_job){.package_id = "p",
                                   .place = "",
                                   .identifier = ITEM,
                                   .metadata = SLICE("{\"title\":[\"A title\"]}"),
                                   .credentials_file = w->keys,
                                   .endpoints = &w->to,
                                   .file = w->file,
                                   .file_count = 2,
                                   .piece = w->piece,
                                   .stopping = stopping,
                                   .progress = progress,
                                   .ctx = w};
    return w;
}

static void world_free(struct world *w)
{
    /* Whatever went wrong: nothing that people read holds the keys. */
    assert_null(strstr(w->v.text, SECRET));
    assert_null(strstr(w->v.text, ACCESS));
    assert_null(strstr(w->v.way_out, SECRET));
    fake_stop(w->fake);
    (void)unlink(w->large);
    (void)unlink(w->small);
    (void)unlink(w->keys);
    assert_int_equal(rmdir(w->dir), 0);
    free(w);
}

/* What is logged meanwhile is looked at: it never has the keys. */
static void send_logged(struct world *w)
{
    static char log[65536];
    FILE *f = tmpfile();
    int old = dup(2);
    size_t n;
    assert_non_null(f);
    assert_int_equal(dup2(fileno(f), 2), 2);
    fake_sync(w->fake);
    artifact_internet_archive.send(&w->job, &w->v);
    fake_sync(w->fake);
    assert_int_equal(dup2(old, 2), 2);
    assert_int_equal(close(old), 0);
    rewind(f);
    n = fread(log, 1, sizeof log - 1, f);
    log[n] = '\0';
    assert_int_equal(fclose(f), 0);
    assert_null(strstr(log, SECRET));
    assert_null(strstr(log, ACCESS));
}

static void do_send(struct world *w, enum artifact_outcome outcome)
{
    send_logged(w);
    if (w->v.outcome != outcome) {
        print_message("said: %s\n", w->v.text);
    }
    assert_int_equal(w->v.outcome, outcome);
}

static void do_verify(struct world *w, enum artifact_outcome outcome)
{
    fake_sync(w->fake);
    artifact_internet_archive.verify(&w->job, &w->v);
    fake_sync(w->fake);
    if (w->v.outcome != outcome) {
        print_message("said: %s\n", w->v.text);
    }
    assert_int_equal(w->v.outcome, outcome);
}

static bool has_line(const struct fake_put *p, const char *line)
{
    char text[600];
    (void)snprintf(text, sizeof text, "\r\n%s\r\n", line);
    return strcasestr(p->head, text) != NULL;
}

/* ---- what is sent ---- */

static void test_the_manifest_then_the_payload(void **state)
{
    (void)state;
    struct world *w = world_new();
    char line[200];
    do_send(w, ARTIFACT_SENT);
    const struct fake_put *first = &w->fake->put[0];
    const struct fake_put *second = &w->fake->put[1];
    assert_int_equal(w->fake->puts, 2);
    assert_string_equal(first->path, "/" ITEM "/" MANIF);
    assert_string_equal(second->path, "/" ITEM "/" PAYLOAD);
    assert_true(has_line(first, "x-archive-queue-derive: 0"));
    assert_true(has_line(second, "x-archive-queue-derive: 1"));
    for (unsigned i = 0; i < 2; i++) {
        const struct fake_put *p = &w->fake->put[i];
        assert_true(has_line(p, "Authorization: LOW " ACCESS ":" SECRET));
        assert_true(has_line(p, "x-archive-auto-make-bucket: 1"));
        assert_true(has_line(p, "x-archive-keep-old-version: 1"));
        assert_true(has_line(p, "x-archive-meta-title: uri(A%20title)"));
        assert_true(has_line(p, "Expect: 100-continue"));
        assert_true(has_line(p, "User-Agent: tallyman/0 (+http://us)"));
        assert_null(strcasestr(p->head, "transfer-encoding"));
        (void)snprintf(line, sizeof line, "x-archive-size-hint: %zu", LARGE + w->file[1].size);
        assert_true(has_line(p, line));
        (void)snprintf(line, sizeof line, "Content-MD5: %s", w->md5[1 - i]);
        assert_true(has_line(p, line));
        (void)snprintf(line, sizeof line, "Content-Length: %zu", (size_t)w->file[1 - i].size);
        assert_true(has_line(p, line));
        assert_int_equal(p->got, w->file[1 - i].size);
        assert_string_equal(w->fake->file[i].md5, w->md5[1 - i]);
    }
    assert_int_equal(strncmp(w->fake->limit_head,
                             "GET /?check_limit=1&accesskey=" ACCESS "&bucket=" ITEM " ", 50),
                     0);
    assert_int_equal(w->v.bytes, LARGE + w->file[1].size);
    assert_int_equal(w->progress, LARGE + w->file[1].size);
    do_verify(w, ARTIFACT_VERIFIED);
    do_send(w, ARTIFACT_VERIFIED); /* and once more: nothing is sent */
    assert_int_equal(w->fake->puts, 2);
    world_free(w);
}

static void test_an_accepted_file_is_not_seen_at_once(void **state)
{
    (void)state;
    struct world *w = world_new();
    w->to.answer_ms = 1800000;
    w->fake->hidden_looks = 2;
    do_send(w, ARTIFACT_SENT);
    do_verify(w, ARTIFACT_UNSEEN);
    assert_int_equal(w->v.wait_ms, 10000);
    w->job.sent_ago_ms = 120000;
    do_verify(w, ARTIFACT_UNSEEN);
    assert_int_equal(w->v.wait_ms, 60000);
    w->job.sent_ago_ms = UINT64_C(86400000);
    do_verify(w, ARTIFACT_VERIFIED);
    w->fake->file[1].looks = 2;
    do_verify(w, ARTIFACT_UNSEEN);
    assert_int_equal(w->v.wait_ms, 600000);
    w->job.sent_ago_ms = 3 * UINT64_C(86400000);
    do_verify(w, ARTIFACT_PARKED);
    assert_non_null(strstr(w->v.text, "3 days ago"));
    assert_int_equal(w->fake->puts, 2);
    world_free(w);
}

static void test_what_is_there_is_not_sent(void **state)
{
    (void)state;
    struct world *w = world_new();
    do_send(w, ARTIFACT_SENT);
    w->fake->files = 1; /* the payload goes; its manifest stays */
    do_send(w, ARTIFACT_SENT);
    assert_int_equal(w->fake->puts, 3);
    assert_string_equal(w->fake->put[2].path, "/" ITEM "/" PAYLOAD);
    assert_true(has_line(&w->fake->put[2], "x-archive-queue-derive: 1"));
    /* The manifest goes: it is the last that is sent, and asks for the derive. */
    w->fake->file[0] = w->fake->file[1];
    w->fake->files = 1;
    do_send(w, ARTIFACT_SENT);
    assert_int_equal(w->fake->puts, 4);
    assert_string_equal(w->fake->put[3].path, "/" ITEM "/" MANIF);
    assert_true(has_line(&w->fake->put[3], "x-archive-queue-derive: 1"));
    world_free(w);
}

static void test_another_file_is_never_replaced(void **state)
{
    (void)state;
    struct world *w = world_new();
    do_send(w, ARTIFACT_SENT);
    w->fake->file[1].sha1[0] ^= 1;
    do_send(w, ARTIFACT_PARKED);
    assert_non_null(strstr(w->v.text, PAYLOAD));
    assert_non_null(strstr(w->v.text, "us@example.org"));
    do_verify(w, ARTIFACT_UNSEEN); /* it was sent, and may be described wrongly at first */
    assert_non_null(strstr(w->v.text, "another size or digest"));
    w->job.sent_ago_ms = 3 * UINT64_C(86400000);
    do_verify(w, ARTIFACT_PARKED);
    assert_non_null(strstr(w->v.text, "another file named " PAYLOAD));
    w->fake->tasks = true;
    do_send(w, ARTIFACT_RETRY);
    assert_int_equal(w->v.wait_ms, 600000);
    assert_non_null(strstr(w->v.text, "another file named " PAYLOAD));
    w->fake->tasks = false;
    w->fake->file[1].sha1[0] ^= 1;
    w->fake->file[1].size++;
    do_send(w, ARTIFACT_PARKED);
    w->fake->file[1].size--;
    w->fake->file[1].md5[5] ^= 1;
    do_send(w, ARTIFACT_PARKED);
    assert_int_equal(w->fake->puts, 2);
    world_free(w);
}

static void test_metadata_that_is_odd(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        enum artifact_outcome send, verify;
        const char *text;
    } odd[] = {
        {"HTTP/1.1 429 X\r\nContent-Length: 0\r\n\r\n", ARTIFACT_RETRY, ARTIFACT_UNSEEN, "429"},
        {"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n", ARTIFACT_RETRY, ARTIFACT_UNSEEN, "503"},
        {"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n", ARTIFACT_RETRY, ARTIFACT_UNSEEN, "500"},
        {"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n{}", ARTIFACT_RETRY, ARTIFACT_UNSEEN, "cut"},
        {"HTTP/1.1 200 X\r\nContent-Length: 6\r\n\r\n<html>", ARTIFACT_RETRY, ARTIFACT_UNSEEN,
         "no JSON"},
        {"HTTP/1.1 200 X\r\nContent-Length: 13\r\n\r\n{\"error\":\"x\"}", ARTIFACT_RETRY,
         ARTIFACT_UNSEEN, "an error"},
        {"HTTP/1.1 200 X\r\nContent-Length: 16\r\n\r\n{\"is_dark\":true}", ARTIFACT_PARKED,
         ARTIFACT_PARKED, "is_dark"},
        {"", ARTIFACT_RETRY, ARTIFACT_UNSEEN, "without an answer"},
    };
    struct world *w = world_new();
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        w->fake->metadata = odd[i].answer;
        do_send(w, odd[i].send);
        assert_non_null(strstr(w->v.text, odd[i].text));
        assert_int_equal(w->v.scope, odd[i].send == ARTIFACT_PARKED ? ARTIFACT_ITEM
                                     : i < 2                        ? ARTIFACT_FAR_END
                                                                    : ARTIFACT_DOUBT);
        do_verify(w, odd[i].verify);
        assert_non_null(strstr(w->v.text, odd[i].text));
        assert_true(odd[i].verify != ARTIFACT_UNSEEN || w->v.wait_ms > 0);
    }
    assert_int_equal(w->fake->puts, 0);
    world_free(w);
}

static void test_a_file_that_is_not_described_yet(void **state)
{
    (void)state;
    struct world *w = world_new();
    char answer[500];
    static const char body[] =
        "{\"metadata\":{},\"files\":[{\"name\":\"" PAYLOAD "\",\"size\":\"1\"}],"
        "\"tasks\":[{}]}";
    (void)snprintf(answer, sizeof answer, "HTTP/1.1 200 X\r\nContent-Length: %zu\r\n\r\n%s",
                   strlen(body), body);
    w->fake->metadata = answer;
    do_send(w, ARTIFACT_RETRY);
    assert_non_null(strstr(w->v.text, "has not said yet"));
    do_verify(w, ARTIFACT_UNSEEN);
    assert_non_null(strstr(w->v.text, "pending"));
    assert_int_equal(w->fake->puts, 0);
    world_free(w);
}

static void test_an_item_that_is_full(void **state)
{
    (void)state;
    struct world *w = world_new();
    w->fake->metadata = "HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n"
                        "10\r\n{\"metadata\":{}, \r\n"
                        "1a\r\n\"item_size\":1099511627770}\r\n0\r\n\r\n";
    do_send(w, ARTIFACT_PARKED);
    assert_non_null(strstr(w->v.text, "1 TiB"));
    w->file[0].size = UINT64_C(1) << 41;
    do_send(w, ARTIFACT_PARKED);
    assert_non_null(strstr(w->v.text, "at most 1 TiB"));
    world_free(w);
}

/* ---- answers to a PUT ---- */

#define XML(code, message, resource)                                       \
    "<?xml version='1.0'?>\n<Error><Code>" code "</Code><Message>" message \
    "</Message><Resource>" resource "</Resource><RequestId>1</RequestId></Error>"
#define SLOW(resource) XML("SlowDown", "Please reduce your request rate.", resource)

static const struct {
    unsigned status;
    const char *body;
    enum artifact_outcome outcome;
    enum artifact_scope scope;
    uint64_t wait_ms;
    const char *text;
} answers[] = {
    {503, SLOW("Your upload of x from y appears to be spam. Write to info@archive.org"),
     ARTIFACT_PARKED, ARTIFACT_ITEM, 0, "Your upload of x from y appears to be spam"},
    {503, SLOW("total_tasks_queued exceeds global_limit"), ARTIFACT_RETRY, ARTIFACT_FAR_END, 600000,
     "whole Archive"},
    {503, SLOW("accesskey_tasks_queued exceeds rationed amount"), ARTIFACT_RETRY, ARTIFACT_KEYS,
     600000, "our account"},
    {503, SLOW("bucket_tasks_queued exceeds bucket_limit amount"), ARTIFACT_RETRY, ARTIFACT_ITEM,
     600000, "the item has too many"},
    {503, SLOW("simulated error"), ARTIFACT_RETRY, ARTIFACT_FAR_END, 600000, "do not know"},
    {503, "<html>Down</html>", ARTIFACT_RETRY, ARTIFACT_FAR_END, 60000, "no uploads now"},
    {502, "", ARTIFACT_RETRY, ARTIFACT_FAR_END, 60000, "502"},
    {504, "<html>", ARTIFACT_RETRY, ARTIFACT_FAR_END, 60000, "504"},
    {500, "<html>", ARTIFACT_RETRY, ARTIFACT_THIS, 0, "500"},
    {400, XML("BadDigest", "", ""), ARTIFACT_RETRY, ARTIFACT_THIS, 0, "changed on the way"},
    {400, XML("IncompleteBody", "", ""), ARTIFACT_RETRY, ARTIFACT_THIS, 0, "troubled"},
    {400, XML("RequestTimeout", "", ""), ARTIFACT_RETRY, ARTIFACT_THIS, 0, "troubled"},
    {400, XML("InvalidBucketName", "", "x &lt;y&gt; &amp;"), ARTIFACT_PARKED, ARTIFACT_THIS, 0,
     "x <y> &"},
    {400, XML("KeyTooLong", "", ""), ARTIFACT_PARKED, ARTIFACT_THIS, 0, "too long"},
    {400, XML("MetadataTooLarge", "", ""), ARTIFACT_PARKED, ARTIFACT_THIS, 0, "metadata"},
    {400, XML("InvalidArgument", "", ""), ARTIFACT_PARKED, ARTIFACT_THIS, 0, "InvalidArgument"},
    {400, XML("NeverHeardOf", "", ""), ARTIFACT_PARKED, ARTIFACT_THIS, 0, "NeverHeardOf"},
    {400, "", ARTIFACT_RETRY, ARTIFACT_THIS, 0, "400"},
    {401, "", ARTIFACT_RETRY, ARTIFACT_KEYS, 3600000, "keys"},
    {403, XML("InvalidAccessKeyId", "", ACCESS), ARTIFACT_RETRY, ARTIFACT_KEYS, 3600000, "access"},
    {403, XML("SignatureDoesNotMatch", "", SECRET), ARTIFACT_RETRY, ARTIFACT_KEYS, 3600000,
     "secret"},
    {403, XML("AccountProblem", "", ""), ARTIFACT_RETRY, ARTIFACT_KEYS, 3600000, "account"},
    {403, XML("AccessDenied", "", ""), ARTIFACT_RETRY, ARTIFACT_PLACE, 3600000, "AccessDenied"},
    {403, XML("AccessDenied", "", "You lack sufficient privileges to write to those collections"),
     ARTIFACT_PARKED, ARTIFACT_PLACE, 0, "collection"},
    {403, XML("AccessDenied", "", "total item size would be 1099511627777"), ARTIFACT_PARKED,
     ARTIFACT_ITEM, 0, "too large"},
    {403, XML("AccessDenied", "", "the total of 7 bytes would exceed the limit of an item"),
     ARTIFACT_PARKED, ARTIFACT_ITEM, 0, "too large"},
    {403, XML("AccessDenied", "", "item x is dark"), ARTIFACT_PARKED, ARTIFACT_ITEM, 0, "dark"},
    {403, XML("AccessDenied", "", "You lack sufficient privileges to write to this item."),
     ARTIFACT_PARKED, ARTIFACT_ITEM, 0, "somebody else"},
    {404, XML("NoSuchBucket", "", ""), ARTIFACT_RETRY, ARTIFACT_THIS, 0, "not made yet"},
    {409, XML("OperationAborted", "", ""), ARTIFACT_RETRY, ARTIFACT_THIS, 0, "being changed"},
    {409, XML("BucketAlreadyExists", "", ""), ARTIFACT_RETRY, ARTIFACT_THIS, 0, "meanwhile"},
    {411, XML("MissingContentLength", "", ""), ARTIFACT_PARKED, ARTIFACT_THIS, 0, "length"},
    {418, "", ARTIFACT_RETRY, ARTIFACT_THIS, 0, "418"},
    {204, "", ARTIFACT_RETRY, ARTIFACT_THIS, 0, "204"},
};

static void test_each_answer(void **state)
{
    (void)state;
    struct world *w = world_new();
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        w->fake->puts = 0;
        w->fake->act[0] = (struct fake_act){FAKE_ANSWERS, answers[i].body, answers[i].status};
        do_send(w, answers[i].outcome);
        assert_int_equal(w->v.scope, answers[i].scope);
        assert_int_equal(w->v.wait_ms, answers[i].wait_ms);
        assert_non_null(strstr(w->v.text, answers[i].text));
        assert_null(strstr(w->v.text, ACCESS));
        assert_null(strstr(w->v.text, SECRET));
        if (w->v.outcome == ARTIFACT_PARKED || w->v.wait_ms == 3600000) {
            assert_true(w->v.way_out[0] != '\0');
        }
        assert_int_equal(w->fake->puts, 1);
        assert_string_equal(w->fake->put[0].path, "/" ITEM "/" MANIF);
    }
    w->fake->puts = 0;
    w->fake->act[0] = (struct fake_act){FAKE_STORES, NULL, 0};
    world_free(w);
}

/* It is held, not the keys, and stands in nobody's way for ever. */
static void test_a_refusal_that_nobody_knows(void **state)
{
    (void)state;
    struct world *w = world_new();
    for (unsigned i = 0; i < 4; i++) {
        w->fake->act[i] = (struct fake_act){
            FAKE_REFUSES, XML("AccessDenied", "Access Denied", "the stars are not right"), 403};
        w->job.attempt = i + 1;
        do_send(w, i < 2 ? ARTIFACT_RETRY : ARTIFACT_PARKED);
        assert_int_equal(w->v.scope, i < 2 ? ARTIFACT_PLACE : ARTIFACT_THIS);
        assert_non_null(strstr(w->v.text, "the stars are not right"));
        assert_non_null(strstr(w->v.way_out, "park retry"));
    }
    w->fake->act[4] = (struct fake_act){FAKE_REFUSES, XML("AccountProblem", "", ""), 403};
    do_send(w, ARTIFACT_RETRY); /* known, however often */
    assert_int_equal(w->v.scope, ARTIFACT_KEYS);
    world_free(w);
}

static void test_an_item_of_somebody_else(void **state)
{
    (void)state;
    struct world *w = world_new();
    static const char body[] = "{\"metadata\":{\"uploader\":\"other@example.org\"},\"files\":[]}";
    char answer[300];
    (void)snprintf(answer, sizeof answer, "HTTP/1.1 200 X\r\nContent-Length: %zu\r\n\r\n%s",
                   strlen(body), body);
    w->fake->metadata = answer;
    w->fake->act[0] =
        (struct fake_act){FAKE_REFUSES, XML("AccessDenied", "Access Denied", ""), 403};
    do_send(w, ARTIFACT_PARKED);
    assert_int_equal(w->v.scope, ARTIFACT_ITEM);
    assert_non_null(strstr(w->v.text, "somebody else's: other@example.org"));
    world_free(w);
}

static void test_an_early_refusal_of_the_payload(void **state)
{
    (void)state;
    static const int how[] = {FAKE_REFUSES, FAKE_RESETS};
    for (unsigned i = 0; i < 2; i++) {
        struct world *w = world_new();
        w->fake->act[1] =
            (struct fake_act){how[i], SLOW("this appears to be spam, all of it"), 503};
        do_send(w, ARTIFACT_PARKED);
        assert_non_null(strstr(w->v.text, "appears to be spam, all of it"));
        assert_int_equal(w->v.bytes, w->file[1].size);
        world_free(w);
    }
}

static void test_a_connection_that_breaks(void **state)
{
    (void)state;
    struct world *w = world_new();
    w->fake->act[1] = (struct fake_act){FAKE_DROPS, NULL, 0};
    do_send(w, ARTIFACT_RETRY);
    assert_int_equal(w->v.scope, ARTIFACT_THIS);
    assert_non_null(strstr(w->v.text, "of 7340049 bytes"));
    do_send(w, ARTIFACT_SENT); /* from its first byte */
    assert_int_equal(w->fake->puts, 3);
    assert_int_equal(w->fake->put[2].got, LARGE);
    world_free(w);
}

/* The job as the runner gives it next, after a try that said so much. */
static void next_try(struct world *w, uint64_t ago_ms)
{
    w->job.maybe_files |= w->v.maybe_files;
    w->job.maybe_ago_ms = ago_ms;
}

static void test_a_lost_answer(void **state)
{
    (void)state;
    struct world *w = world_new();
    w->fake->act[1] = (struct fake_act){FAKE_LOSES, NULL, 0};
    w->fake->hidden_looks = 3;
    do_send(w, ARTIFACT_RETRY);
    assert_int_equal(w->v.scope, ARTIFACT_THIS);
    assert_non_null(strstr(w->v.text, "looked for before it is sent again"));
    assert_true(w->v.maybe_files ==
                3); /* the manifest was accepted and does not show yet, either */
    next_try(w, 0);
    for (unsigned i = 0; i < 3; i++) {
        do_send(w, ARTIFACT_UNSEEN);
        assert_non_null(strstr(w->v.text, "may have brought " PAYLOAD));
        assert_true(w->v.wait_ms > 0);
        assert_true(w->v.maybe_files == 0);
    }
    do_send(w, ARTIFACT_VERIFIED); /* it was there */
    assert_int_equal(w->fake->puts, 2);
    world_free(w);
}

static void test_a_lost_answer_of_what_was_not_taken(void **state)
{
    (void)state;
    struct world *w = world_new();
    w->fake->act[1] = (struct fake_act){FAKE_LOSES, NULL, 0};
    do_send(w, ARTIFACT_RETRY);
    fake_sync(w->fake);
    w->fake->files = 1; /* and was not taken */
    next_try(w, w->to.answer_ms - 1);
    do_send(w, ARTIFACT_UNSEEN);
    assert_int_equal(w->fake->puts, 2);
    next_try(w, w->to.answer_ms); /* it would have been answered by now */
    do_send(w, ARTIFACT_SENT);
    assert_int_equal(w->fake->puts, 3);
    assert_string_equal(w->fake->put[2].path, "/" ITEM "/" PAYLOAD);
    world_free(w);
}

/* An answer of a gateway, for which nobody knows either; one of the Archive's own says that the
 * file was not taken; and one that came before the last byte. */
static void test_who_knows(void **state)
{
    (void)state;
    static const struct {
        unsigned put; /* the first is the manifest's, the second the payload's */
        int what;
        unsigned status;
        uint64_t maybe;
    } table[] = {{0, FAKE_ANSWERS, 502, 2}, {0, FAKE_ANSWERS, 504, 2}, {0, FAKE_ANSWERS, 500, 0},
                 {0, FAKE_ANSWERS, 503, 0}, {0, FAKE_REFUSES, 502, 0}, {1, FAKE_DROPS, 0, 2}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct world *w = world_new();
        w->fake->act[table[i].put] = (struct fake_act){table[i].what, "", table[i].status};
        do_send(w, ARTIFACT_RETRY);
        assert_true(w->v.maybe_files == table[i].maybe);
        world_free(w);
    }
}

static void test_no_expectations(void **state)
{
    (void)state;
    struct world *w = world_new();
    w->fake->act[0] = w->fake->act[2] = (struct fake_act){FAKE_REFUSES, "", 417};
    do_send(w, ARTIFACT_SENT); /* each once more, without */
    assert_int_equal(w->fake->puts, 4);
    for (unsigned i = 0; i < 4; i++) {
        assert_true(has_line(&w->fake->put[i], "Expect: 100-continue") == (i % 2 == 0));
        assert_true(has_line(&w->fake->put[i], "x-archive-queue-derive: 1") == (i >= 2));
    }
    w->fake->files = w->fake->puts = 0;
    w->fake->act[1] = w->fake->act[0];
    do_send(w, ARTIFACT_RETRY); /* without, too: an answer like any other */
    assert_non_null(strstr(w->v.text, "417"));
    assert_int_equal(w->fake->puts, 2);
    world_free(w);
}

static void test_a_wrong_etag(void **state)
{
    (void)state;
    struct world *w = world_new();
    w->fake->act[0] = (struct fake_act){FAKE_ETAG_OF_OTHER, NULL, 0};
    do_send(w, ARTIFACT_RETRY);
    assert_non_null(strstr(w->v.text, "changed on the way"));
    assert_int_equal(w->fake->puts, 1);
    world_free(w);
}

static void test_local_bytes_that_changed(void **state)
{
    (void)state;
    struct world *w = world_new();
    write_file(w->small, "{\"manifest\":2}\n", 15);
    w->fake->act[0] = (struct fake_act){FAKE_ANSWERS, XML("BadDigest", "", ""), 400};
    do_send(w, ARTIFACT_PARKED);
    assert_non_null(strstr(w->v.text, "differ from the receipt"));
    w->fake->act[1] = (struct fake_act){FAKE_STORES, NULL, 0};
    do_send(w, ARTIFACT_PARKED); /* a server without digests: its ETag shows it */
    assert_non_null(strstr(w->v.text, "differ from the receipt"));
    w->fake->files = 0;
    write_file(w->small, "short", 5);
    do_send(w, ARTIFACT_PARKED);
    assert_non_null(strstr(w->v.text, "another size"));
    assert_int_equal(unlink(w->small), 0);
    do_send(w, ARTIFACT_PARKED);
    assert_non_null(strstr(w->v.text, "missing"));
    assert_int_equal(w->fake->puts, 2);
    world_free(w);
}

/* ---- redirects ---- */

static void test_redirects(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct fake *other = fake_start();
    w->fake->redirect = other->raw.url;
    w->fake->redirect_limit = true;
    do_send(w, ARTIFACT_SENT);
    assert_int_equal(other->limits, 1);
    assert_int_equal(w->fake->puts, 2);
    assert_int_equal(w->fake->files, 0);
    fake_sync(other);
    assert_int_equal(other->files, 2);
    assert_true(has_line(&other->put[1], "Authorization: LOW " ACCESS ":" SECRET));
    assert_string_equal(other->file[1].md5, w->md5[0]);
    w->fake->redirect_limit = true;
    w->fake->redirect = "http://0.0.0.0:1";
    do_send(w, ARTIFACT_RETRY);
    assert_non_null(strstr(w->v.text, "http://0.0.0.0:1, which is not followed"));
    w->fake->redirect = "https://archive.org.example.com";
    do_send(w, ARTIFACT_RETRY);
    assert_non_null(
        strstr(w->v.text, "https://archive.org.example.com:443, which is not followed"));
    w->fake->redirect = "http://s3.us.archive.org"; /* the right place, in clear */
    do_send(w, ARTIFACT_RETRY);
    assert_non_null(strstr(w->v.text, "not followed"));
    w->fake->redirect_limit = false;
    w->fake->redirect = w->fake->raw.url;
    unsigned before = w->fake->puts;
    do_send(w, ARTIFACT_RETRY);
    assert_non_null(strstr(w->v.text, "without end"));
    assert_int_equal(w->fake->puts - before, 6);
    fake_stop(other);
    world_free(w);
}

/* ---- keys and rations ---- */

static void test_the_key_file(void **state)
{
    (void)state;
    static const char *const good[] = {ACCESS "\n" SECRET, "  " ACCESS "\r\n\t" SECRET " \r\n\r\n"};
    static const char *const bad[] = {"",
                                      "\n",
                                      ACCESS,
                                      ACCESS "\n",
                                      ACCESS "\n\n" SECRET "\n",
                                      ACCESS " x\n" SECRET "\n",
                                      ACCESS "\n" SECRET "\nmore\n",
                                      "a:b\n" SECRET "\n"};
    struct world *w = world_new();
    struct archive_keys keys;
    struct err e;
    bool open = true;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        write_file(w->keys, good[i], strlen(good[i]));
        assert_int_equal(archive_keys_read(w->keys, &keys, &open, &e), 0);
        assert_string_equal(keys.access, ACCESS);
        assert_string_equal(keys.secret, SECRET);
        assert_false(open);
    }
    assert_int_equal(chmod(w->keys, 0640), 0);
    assert_int_equal(archive_keys_read(w->keys, &keys, &open, &e), 0);
    assert_true(open);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(w->keys, bad[i], strlen(bad[i]));
        do_send(w, ARTIFACT_RETRY);
        assert_int_equal(w->v.scope, ARTIFACT_KEYS);
        assert_non_null(strstr(w->v.text, "two lines"));
        assert_null(strstr(w->v.text, ACCESS));
    }
    assert_int_equal(unlink(w->keys), 0);
    do_send(w, ARTIFACT_RETRY);
    assert_int_equal(w->v.scope, ARTIFACT_KEYS);
    w->job.credentials_file = "";
    do_send(w, ARTIFACT_PARKED);
    assert_int_equal(w->v.scope, ARTIFACT_PLACE);
    assert_int_equal(w->fake->limits, 0);
    world_free(w);
}

#define LIMIT(n, json) "HTTP/1.1 200 X\r\nContent-Length: " n "\r\n\r\n" json

static void test_rations(void **state)
{
    (void)state;
    static const struct {
        const char *detail;
        enum artifact_scope scope;
    } over[] = {{"\"limit_reason\":\"bucket_tasks_queued exceeds\"", ARTIFACT_ITEM},
                {"\"limit_reason\":\"\",\"accesskey_ration\":150,\"accesskey_tasks_queued\":151",
                 ARTIFACT_KEYS},
                {"\"bucket_ration\":\"9\",\"bucket_tasks_queued\":\"9\"", ARTIFACT_ITEM},
                {"\"total_global_limit\":10,\"total_tasks_queued\":12", ARTIFACT_FAR_END},
                {"\"rationing_level\":3", ARTIFACT_FAR_END}};
    static const char *const unknown[] = {"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n",
                                          LIMIT("2", "{}"), LIMIT("4", "null"),
                                          LIMIT("19", "{\"over_limit\":\"yes\"}"), ""};
    struct world *w = world_new();
    char text[500];
    char body[300];
    for (size_t i = 0; i < sizeof over / sizeof *over; i++) {
        (void)snprintf(body, sizeof body, "{\"over_limit\":1,\"detail\":{%s}}", over[i].detail);
        (void)snprintf(text, sizeof text, "HTTP/1.1 200 X\r\nContent-Length: %zu\r\n\r\n%s",
                       strlen(body), body);
        w->fake->limit = text;
        do_send(w, ARTIFACT_RETRY);
        assert_int_equal(w->v.scope, over[i].scope);
        assert_int_equal(w->v.wait_ms, 600000);
        assert_non_null(strstr(w->v.text, "asked before sending"));
        if (i == 0) {
            assert_non_null(strstr(w->v.text, "bucket_tasks_queued exceeds"));
        }
    }
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        w->fake->limit = unknown[i];
        do_send(w, ARTIFACT_RETRY);
        assert_int_equal(w->v.scope, ARTIFACT_FAR_END);
        assert_non_null(strstr(w->v.text, "not known"));
    }
    assert_int_equal(w->fake->puts, 0);
    assert_int_equal(w->fake->looks, 0);
    world_free(w);
}

/* ---- metadata ---- */

static void headers(const char *metadata, const char *lines)
{
    struct buf out = {0};
    struct err e = {0};
    int r = archive_meta_headers(slice_cstr(metadata), &out, &e);
    if (lines == NULL) {
        assert_int_not_equal(r, 0);
        assert_true(e.text[0] != '\0');
    } else {
        assert_int_equal(r, 0);
        assert_int_equal(out.len, strlen(lines));
        assert_memory_equal(out.ptr == NULL ? "" : out.ptr, lines, out.len);
    }
    buf_free(&out);
}

static void test_metadata_headers(void **state)
{
    (void)state;
    headers("{}", "");
    headers("{\"a\":[]}", "");
    headers("{\"a\":[\"\"]}", "");
    headers("{\"a\":[\"x/y~z:1\"]}", "x-archive-meta-a: x/y~z:1\n");
    headers("{\"no_under_score\":[\"x\"]}", "x-archive-meta-no--under--score: x\n");
    headers("{\"b\":[\"2\",\"\",\"1\"],\"a\":[\"x\"]}",
            "x-archive-meta-a: x\nx-archive-meta01-b: 2\nx-archive-meta02-b: 1\n");
    headers("{\"a\":[\"two words\"]}", "x-archive-meta-a: uri(two%20words)\n");
    headers("{\"a\":[\"l\\ni\\te\"]}", "x-archive-meta-a: uri(l%0Ai%09e)\n");
    headers("{\"a\":[\"\xe4\xb8\xad\"]}", "x-archive-meta-a: uri(%E4%B8%AD)\n");
    headers("{\"a\":[\"uri(x)\"]}", "x-archive-meta-a: uri(uri%28x%29)\n");
    headers("{\"a\":[\"x%20y\"]}", "x-archive-meta-a: x%20y\n"); /* percent alone is itself */
    headers("{\"a--b\":[\"x\"]}", NULL);
    headers("{\"a-_b\":[\"x\"]}", NULL);
    headers("{\"A\":[\"x\"]}", NULL);
    headers("{\"xmlns\":[\"x\"]}", NULL);
    headers("{\"a\":[\"\\u0001\"]}", NULL);
    headers("{\"a\":\"x\"}", NULL);
    headers("{\"a\":[1]}", NULL);
    headers("[]", NULL);
    struct buf many = {0};
    buf_put_cstr(&many, "{\"a\":[\"x\"");
    for (unsigned i = 0; i < 98; i++) {
        buf_put_cstr(&many, ",\"x\"");
    }
    buf_put_cstr(&many, "]}");
    buf_put_char(&many, '\0');
    struct buf out = {0};
    struct err e = {0};
    assert_int_equal(archive_meta_headers(slice_cstr(many.ptr), &out, &e), 0);
    assert_non_null(memmem(out.ptr, out.len, "x-archive-meta99-a: x\n", 22));
    buf_free(&out);
    many.len -= 3;
    buf_put_cstr(&many, ",\"x\"]}");
    buf_put_char(&many, '\0');
    headers(many.ptr, NULL);
    buf_clear(&many);
    buf_put_cstr(&many, "{\"a\":[\"");
    for (unsigned i = 0; i < 2500; i++) {
        buf_put_cstr(&many, "%3C  ");
    }
    buf_put_cstr(&many, "\"]}");
    buf_put_char(&many, '\0');
    headers(many.ptr, NULL);
    buf_free(&many);
}

static void test_a_plan_that_cannot_be(void **state)
{
    (void)state;
    struct world *w = world_new();
    static const char *const bad[] = {"abcd", "-abcde", "a b c d", "item/x"};
    for (unsigned i = 0; i < 4; i++) {
        w->job.identifier = bad[i];
        do_send(w, ARTIFACT_PARKED);
        assert_non_null(strstr(w->v.text, "identifier or name"));
    }
    w->job.identifier = ITEM;
    w->file[0].name = ITEM "_meta.xml";
    do_send(w, ARTIFACT_PARKED);
    w->file[0].name = "a/../b";
    do_send(w, ARTIFACT_PARKED);
    w->file[0].name = PAYLOAD;
    w->job.metadata = SLICE("{\"a--b\":[\"x\"]}");
    do_send(w, ARTIFACT_PARKED);
    assert_non_null(strstr(w->v.text, "metadata: "));
    assert_int_equal(atomic_load(&w->fake->raw.connections), 0);
    world_free(w);
}

/* ---- the end, and several at once ---- */

static void test_stopping(void **state)
{
    (void)state;
    struct world *w = world_new();
    unsigned whole;
    do_send(w, ARTIFACT_SENT);
    whole = atomic_load(&w->asked);
    assert_true(whole > 10);
    for (unsigned at = 1; at < whole; at += 1 + whole / 12) {
        w->fake->files = 0;
        w->fake->puts = 0;
        atomic_store(&w->asked, 0);
        w->stop_at = at;
        fake_sync(w->fake);
        artifact_internet_archive.send(&w->job, &w->v);
        fake_sync(w->fake);
        assert_true(w->v.outcome == ARTIFACT_STOPPED || w->v.outcome == ARTIFACT_SENT);
        w->stop_at = 0;
        do_send(w, w->fake->files == 2 ? ARTIFACT_VERIFIED : ARTIFACT_SENT);
    }
    world_free(w);
}

struct one {
    struct world *w;
    char identifier[40];
    struct artifact_job job;
    struct artifact_verdict sent, verified;
    unsigned char *piece;
};

static bool never(void *ctx)
{
    (void)ctx;
    return false;
}

static void *deliver_one(void *arg)
{
    struct one *o = arg;
    artifact_internet_archive.send(&o->job, &o->sent);
    artifact_internet_archive.verify(&o->job, &o->verified);
    return NULL;
}

static void test_several_at_once(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct one one[4];
    pthread_t thread[4];
    for (unsigned i = 0; i < 4; i++) {
        one[i] = (struct one){.w = w, .job = w->job, .piece = malloc(ARTIFACT_PIECE_BYTES)};
        (void)snprintf(one[i].identifier, sizeof one[i].identifier, "item-number-%u", i);
        one[i].job.identifier = one[i].identifier;
        one[i].job.piece = one[i].piece;
        one[i].job.stopping = never;
        one[i].job.progress = NULL;
        assert_int_equal(pthread_create(&thread[i], NULL, deliver_one, &one[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        assert_int_equal(one[i].sent.outcome, ARTIFACT_SENT);
        assert_int_equal(one[i].verified.outcome, ARTIFACT_VERIFIED);
        free(one[i].piece);
    }
    fake_sync(w->fake);
    assert_int_equal(w->fake->puts, 8);
    world_free(w);
}

static void test_nobody_there(void **state)
{
    (void)state;
    struct world *w = world_new();
    w->to.archive_s3 = "http://127.0.0.1:1";
    do_send(w, ARTIFACT_RETRY);
    assert_int_equal(w->v.scope, ARTIFACT_FAR_END);
    w->to.archive_s3 = w->fake->raw.url;
    w->to.archive_metadata = "http://127.0.0.1:1";
    do_send(w, ARTIFACT_RETRY);
    assert_int_equal(w->v.scope, ARTIFACT_FAR_END);
    do_verify(w, ARTIFACT_UNSEEN);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_manifest_then_the_payload),
        cmocka_unit_test(test_an_accepted_file_is_not_seen_at_once),
        cmocka_unit_test(test_what_is_there_is_not_sent),
        cmocka_unit_test(test_another_file_is_never_replaced),
        cmocka_unit_test(test_metadata_that_is_odd),
        cmocka_unit_test(test_a_file_that_is_not_described_yet),
        cmocka_unit_test(test_an_item_that_is_full),
        cmocka_unit_test(test_each_answer),
        cmocka_unit_test(test_a_refusal_that_nobody_knows),
        cmocka_unit_test(test_an_item_of_somebody_else),
        cmocka_unit_test(test_an_early_refusal_of_the_payload),
        cmocka_unit_test(test_a_connection_that_breaks),
        cmocka_unit_test(test_a_lost_answer),
        cmocka_unit_test(test_a_lost_answer_of_what_was_not_taken),
        cmocka_unit_test(test_who_knows),
        cmocka_unit_test(test_no_expectations),
        cmocka_unit_test(test_a_wrong_etag),
        cmocka_unit_test(test_local_bytes_that_changed),
        cmocka_unit_test(test_redirects),
        cmocka_unit_test(test_the_key_file),
        cmocka_unit_test(test_rations),
        cmocka_unit_test(test_metadata_headers),
        cmocka_unit_test(test_a_plan_that_cannot_be),
        cmocka_unit_test(test_stopping),
        cmocka_unit_test(test_several_at_once),
        cmocka_unit_test(test_nobody_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
