/* tus_client: what travels and is judged, sessions, the hash pass, and interrupt. What happens on
 * the wire is in tests/blackbox/test_put.py. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "main/interrupt.h"
#include "main/progress.h"
#include "main/tus_client_internal.h"
#include "main/tus_job.h"
#include "os/os.h"

/* BLAKE3 of "abc", from the test vectors that every implementation shares. */
#define ABC "blake3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"

static char dir[] = "/tmp/tus-client-XXXXXX";

static const char *in_dir(const char *name)
{
    static char path[4][256];
    static unsigned turn;
    turn = (turn + 1) % 4;
    (void)snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static void write_file(const char *path, const void *p, size_t n)
{
    int fd = os_open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(os_pwrite_all(fd, p, n, 0, NULL), 0);
    assert_int_equal(os_close(fd), 0);
}

/* ---- base64 ---- */

static void test_base64(void **state)
{
    (void)state;
    static const struct {
        const char *plain, *text;
    } rows[] = {{"", ""},         {"f", "Zg=="},         {"fo", "Zm8="},
                {"foo", "Zm9v"},  {"foob", "Zm9vYg=="},  {"\xff\xfe\xfd", "//79"},
                {"\xfb", "+w=="}, {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf out = {0};
        struct buf back = {0};
        tus_put_base64(&out, slice_cstr(rows[i].plain));
        assert_true(slice_eq(buf_slice(&out), slice_cstr(rows[i].text)));
        assert_true(tus_base64_decode(buf_slice(&out), &back));
        assert_true(slice_eq(buf_slice(&back), slice_cstr(rows[i].plain)));
        buf_clear(&back); /* and without its padding */
        size_t len = strcspn(rows[i].text, "=");
        assert_true(tus_base64_decode(slice_of(rows[i].text, len), &back));
        assert_true(slice_eq(buf_slice(&back), slice_cstr(rows[i].plain)));
        buf_free(&out);
        buf_free(&back);
    }
    struct buf out = {0};
    assert_true(tus_base64_decode(SLICE("__79"), &out)); /* the alphabet for URLs */
    assert_true(slice_eq(buf_slice(&out), SLICE("\xff\xfe\xfd")));
    static const char *const bad[] = {
        "Z", "Zg=", "Zg===", "Zh==", "Zg==Zg==", "Zm9v\n", "Z g=", "=", "====", "Zm9vY"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(tus_base64_decode(slice_cstr(bad[i]), &out));
    }
    buf_free(&out);
    buf_init(&out, 2);
    assert_false(tus_base64_decode(SLICE("Zm9v"), &out)); /* more than the buffer takes */
    buf_free(&out);
}

/* ---- URLs ---- */

static void test_resolve(void **state)
{
    (void)state;
    static const struct {
        const char *request, *location;
        bool socket;
        const char *expected; /* NULL: refused */
    } rows[] = {
        {"http://h:80/files/", "/files/a1", false, "http://h:80/files/a1"},
        {"http://h/files/", "http://h:80/files/a1", false, "http://h:80/files/a1"},
        {"https://h/files/", "https://H:443/files/a1", false, "https://H:443/files/a1"},
        {"http://h/p/files/", "a1", false, "http://h/p/files/a1"},
        {"http://h/p/files/", "../x/a1", false, "http://h/p/x/a1"},
        {"http://h/files/", "/files/a%20b#frag", false, NULL}, /* an id of a space */
        {"http://h/files/", "/files/a%7eb?q=/x", false, "http://h/files/a%7eb?q=/x"},
        {"http://[::1]:8/files/", "//[::1]:8/files/a", false, "http://[::1]:8/files/a"},
        {"http://h/files/", "https://h/files/a1", false, NULL},
        {"http://h/files/", "http://h:81/files/a1", false, NULL},
        {"http://h/files/", "http://g/files/a1", false, NULL},
        {"http://h/files/", "http://u@h/files/a1", false, NULL},
        {"http://h/files/", "http://:p@h/files/a1", false, NULL},
        {"http://h/files/", "", false, NULL},
        {"http://h/files/", "/", false, NULL},
        {"http://h/files/", "/files/", false, NULL},
        {"http://h/files/", "/files/a/..", false, NULL},
        {"http://h/files/", "file:///files/a1", false, NULL},
        {"http://h/files/", "http://", false, NULL},
        {"http://localhost/files/", "https://far.test/x/a1?y", true, "http://localhost/files/a1"},
        {"http://localhost/files/", "ftp://far.test/x/a1", true, NULL},
        {"http://localhost/files/", "https://u@far.test/x/a1", true, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char out[TUS_URL_MAX] = "";
        struct err e = {0};
        int r = tus_resolve(rows[i].request, rows[i].location, rows[i].socket, out, &e);
        if (rows[i].expected == NULL) {
            assert_int_equal(r, ERR_REFUSED);
            assert_true(e.text[0] != '\0');
        } else {
            assert_int_equal(r, 0);
            assert_string_equal(out, rows[i].expected);
        }
    }
}

static void test_resolve_of_long_ones(void **state)
{
    (void)state;
    char out[TUS_URL_MAX];
    char location[TUS_URL_MAX + 100];
    struct err e = {0};
    memset(location, '/', sizeof location);
    memset(location + 1, 'x', TUS_URL_MAX + 50);
    memcpy(location + TUS_URL_MAX + 50, "/id", 4);
    assert_int_equal(tus_resolve("http://h/files/", location, false, out, &e), ERR_REFUSED);
    assert_non_null(strstr(e.text, "too long"));
    memset(location + 1, 'x', TUS_ID_MAX);
    location[1 + TUS_ID_MAX] = '\0';
    assert_int_equal(tus_resolve("http://h/files/", location, false, out, &e), ERR_REFUSED);
    location[TUS_ID_MAX] = '\0'; /* the longest id */
    assert_int_equal(tus_resolve("http://h/files/", location, false, out, &e), 0);
}

static void test_object_id(void **state)
{
    (void)state;
    char id[TUS_ID_MAX];
    assert_true(tus_object_id("http://h/files/a%2db?x=/y#/z", id));
    assert_string_equal(id, "a-b");
    static const char *const bad[] = {"http://h",        "http://h/",         "http://h/a/",
                                      "http://h/a%2Fb",  "http://h/%00",      "http://h/a%0a",
                                      "http://h/%2e%2e", "http://h/a%20b",    "no url",
                                      "http://h/%2e",    "http://h/files/%7f"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(tus_object_id(bad[i], id));
    }
    assert_true(tus_same_origin("http://h/a", "HTTP://H:80/b"));
    assert_false(tus_same_origin("http://h/a", "http://h:8080/a"));
    assert_false(tus_same_origin("http://h/a", "https://h/a"));
    assert_false(tus_same_origin("http://h/a", "nonsense"));
    assert_false(tus_same_origin("", "http://h/a"));
}

/* ---- numbers and waits ---- */

static void test_number(void **state)
{
    (void)state;
    uint64_t v = 0;
    assert_true(tus_client_number(SLICE("0"), &v));
    assert_int_equal(v, 0);
    assert_true(tus_client_number(SLICE("9223372036854775807"), &v));
    assert_int_equal(v, INT64_MAX);
    static const char *const bad[] = {
        "", "-1", "+1", " 1", "1 ", "1.0", "0x1", "9223372036854775808", "00000000000000000001"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(tus_client_number(slice_cstr(bad[i]), &v));
    }
}

static void test_retry_after(void **state)
{
    (void)state;
    const uint64_t now = UINT64_C(784111777000); /* Sun, 06 Nov 1994 08:49:37 GMT */
    uint64_t ms = 7;
    assert_true(tus_retry_after_ms(SLICE(" 60 "), now, &ms));
    assert_int_equal(ms, 60000);
    assert_true(tus_retry_after_ms(SLICE("0"), now, &ms));
    assert_int_equal(ms, 0);
    /* The three spellings of HTTP. */
    static const char *const dates[] = {"Sun, 06 Nov 1994 08:49:47 GMT",
                                        "Sunday, 06-Nov-94 08:49:47 GMT",
                                        "Sun Nov  6 08:49:47 1994"};
    for (size_t i = 0; i < sizeof dates / sizeof *dates; i++) {
        assert_true(tus_retry_after_ms(slice_cstr(dates[i]), now, &ms));
        assert_int_equal(ms, 10000);
    }
    static const char *const bad[] = {
        "",
        "-5",
        "1.5",
        "soon",
        "9999999999",
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:47 GMT and then a very long tail of it"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(tus_retry_after_ms(slice_cstr(bad[i]), now, &ms));
    }
}

static void test_wait(void **state)
{
    (void)state;
    static const uint64_t full[] = {1000, 2000, 4000, 8000, 16000, 30000, 30000};
    for (unsigned i = 0; i < 7; i++) {
        assert_int_equal(tus_wait_ms(i + 1, false, 0), full[i] / 2);
        assert_int_equal(tus_wait_ms(i + 1, false, (uint32_t)full[i] / 2), full[i]);
    }
    assert_int_equal(tus_wait_ms(1, true, 0), 50);
    assert_int_equal(tus_wait_ms(1, true, 50), 100);
    assert_int_equal(tus_wait_ms(1000000, true, UINT32_MAX) <= 30000, 1);
}

static void test_first_line(void **state)
{
    (void)state;
    char out[8];
    tus_first_line(SLICE("a\x1b[c\nnext"), out, sizeof out);
    assert_string_equal(out, "a?[c");
    tus_first_line(SLICE("0123456789"), out, sizeof out);
    assert_string_equal(out, "0123456");
    tus_first_line(SLICE(""), out, sizeof out);
    assert_string_equal(out, "");
}

/* ---- receipts ---- */

static struct tus_session sample(void)
{
    struct tus_session s = {.server = "/srv/data",
                            .file = "/tmp/a \"file\"",
                            .upload_url = "http://localhost/files/abc",
                            .object_id = "abc",
                            .project = "demo",
                            .filename = "n\xc3\xbc",
                            .checksum = ABC,
                            .size_bytes = 3};
    return s;
}

#define RECEIPT(id, sum, size)                                                              \
    "{\"id\":\"receipt:abc\",\"issuer\":\"i\",\"object_id\":\"" id "\",\"checksum\":\"" sum \
    "\",\"size_bytes\":" size ",\"accepted_at\":\"2026-11-30T12:00:00Z\"}"

static void test_receipt(void **state)
{
    (void)state;
    static const struct {
        const char *json, *error; /* NULL: fine */
    } rows[] = {
        {RECEIPT("abc", ABC, "3"), NULL},
        {RECEIPT("abc", ABC, "3") "\r\n ", NULL},
        {RECEIPT("abd", ABC, "3"), "another object"},
        {RECEIPT("ab", ABC, "3"), "another object"},
        {RECEIPT("abc", ABC "0", "3"), "other bytes"},
        {RECEIPT("abc", ABC, "4"), "another size"},
        {RECEIPT("abc", ABC, "\"3\""), "another size"},
        {RECEIPT("abc", ABC, "-3"), "another size"},
        {RECEIPT("abc", ABC, "3") "x", "is none"},
        {"", "is none"},
        {"{", "is none"},
        {"null", "is none"},
        {"{\"object_id\":\"abc\",\"object_id\":\"abc\"}", "is none"}, /* which of them counts? */
        {"{\"object_id\":\"abc\"}", "other bytes"},
        {"{\"object_id\":\"abc\",\"checksum\":\"" ABC "\"}", "another size"},
    };
    const struct tus_session s = sample();
    struct buf out = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e = {0};
        int r = tus_receipt_take(slice_cstr(rows[i].json), &s, &out, &e);
        assert_int_equal(r, rows[i].error != NULL ? ERR_REFUSED : 0);
        if (rows[i].error != NULL) {
            assert_non_null(strstr(e.text, rows[i].error));
        } else {
            assert_true(slice_eq(buf_slice(&out), SLICE(RECEIPT("abc", ABC, "3"))));
        }
    }
    struct err e = {0};
    assert_int_equal(tus_receipt_take(SLICE("{\"size_bytes\":3,\n \"object_id\":\"abc\",\n"
                                            " \"checksum\":\"" ABC "\"}\n"),
                                      &s, &out, &e),
                     0);
    assert_true(slice_eq(buf_slice(&out), SLICE("{\"checksum\":\"" ABC
                                                "\",\"object_id\":\"abc\",\"size_bytes\":3}")));
    buf_free(&out);
    char *large = calloc(1, TUS_RECEIPT_MAX + 1);
    assert_non_null(large);
    memset(large, '[', TUS_RECEIPT_MAX + 1);
    assert_int_equal(tus_receipt_take(slice_of(large, TUS_RECEIPT_MAX + 1), &s, &out, &e),
                     ERR_REFUSED);
    free(large);
    buf_init(&out, 10);
    assert_int_equal(tus_receipt_take(SLICE(RECEIPT("abc", ABC, "3")), &s, &out, &e),
                     ERR_NO_MEMORY);
    buf_free(&out);
}

/* ---- the hash pass ---- */

static struct {
    int error;             /* of every pread */
    const char *change;    /* a file that the first pread changes */
    bool shorter, touched; /* how */
} fault;

static int64_t faulty_pread(int fd, void *p, size_t n, uint64_t offset)
{
    if (fault.error != 0) {
        return fault.error;
    }
    if (fault.change != NULL) {
        assert_int_equal(truncate(fault.change, fault.shorter ? 1 : 4000000), 0);
        fault.change = NULL;
    }
    return os_real.pread(fd, p, n, offset);
}

static int hash(const char *path, struct tus_content *c, struct err *e)
{
    *e = (struct err){0};
    return tus_content_open(c, path, e);
}

static void test_hash(void **state)
{
    (void)state;
    struct tus_content c;
    struct err e;
    write_file(in_dir("abc"), "abc", 3);
    assert_int_equal(hash(in_dir("abc"), &c, &e), 0);
    assert_string_equal(c.checksum, ABC);
    assert_int_equal(c.size, 3);
    assert_true(c.fd >= 0);
    tus_content_close(&c);
    assert_int_equal(c.fd, -1);
    tus_content_close(&c);
    /* Pieces do not matter: the same bytes over several of them, in one go. */
    size_t n = 3 * TUS_BUFFER_BYTES + 17;
    char *large = malloc(n);
    assert_non_null(large);
    for (size_t i = 0; i < n; i++) {
        large[i] = (char)(i * 31 >> 3);
    }
    write_file(in_dir("large"), large, n);
    struct blake3 h;
    uint8_t digest[BLAKE3_LEN];
    char hex[BLAKE3_HEX_LEN + 1] = "";
    blake3_start(&h);
    blake3_add(&h, large, n);
    blake3_end(&h, digest);
    hex_encode(hex, digest, sizeof digest);
    free(large);
    assert_int_equal(hash(in_dir("large"), &c, &e), 0);
    assert_string_equal(c.checksum + sizeof TUS_CHECKSUM_PREFIX - 1, hex);
    tus_content_close(&c);
}

static void test_hash_of_what_is_none(void **state)
{
    (void)state;
    struct tus_content c;
    struct err e;
    struct os_table table = os_real;
    table.pread = faulty_pread;
    assert_int_equal(hash(in_dir("missing"), &c, &e), ERR_IO);
    tus_content_close(&c);
    assert_int_equal(hash(dir, &c, &e), ERR_USAGE);
    tus_content_close(&c);
    write_file(in_dir("empty"), "", 0);
    assert_int_equal(hash(in_dir("empty"), &c, &e), ERR_USAGE);
    tus_content_close(&c);
    os_install(&table);
    fault.error = -EIO;
    assert_int_equal(hash(in_dir("abc"), &c, &e), ERR_IO);
    tus_content_close(&c);
    fault.error = 0;
    for (int shorter = 0; shorter < 2; shorter++) {
        fault.change = in_dir("large");
        fault.shorter = shorter == 1;
        assert_int_equal(hash(in_dir("large"), &c, &e), ERR_USAGE);
        assert_non_null(strstr(e.text, shorter == 1 ? "became shorter" : "changed while"));
        tus_content_close(&c);
    }
    os_install(NULL);
}

/* ---- sessions ---- */

static void assert_same(const struct tus_session *a, const struct tus_session *b)
{
    assert_string_equal(a->server, b->server);
    assert_string_equal(a->file, b->file);
    assert_string_equal(a->upload_url, b->upload_url);
    assert_string_equal(a->object_id, b->object_id);
    assert_string_equal(a->project, b->project);
    assert_string_equal(a->filename, b->filename);
    assert_string_equal(a->checksum, b->checksum);
    assert_int_equal(a->size_bytes, b->size_bytes);
}

static void test_session(void **state)
{
    (void)state;
    struct tus_session s = sample();
    struct tus_session back;
    struct tus_kept kept;
    struct tus_kept second;
    struct err e = {0};
    struct stat st;
    memcpy(s.file, "/tmp/\xff\"\n", sizeof "/tmp/\xff\"\n"); /* a name that JSON cannot hold */
    assert_int_equal(tus_session_write(dir, &s, &kept, &e), 0);
    assert_int_equal(stat(kept.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(tus_session_read(kept.path, &back, &second, &e), ERR_LOCKED);
    assert_int_equal(second.fd, -1);
    assert_int_equal(tus_session_peek(kept.path, &back, &e), 0);
    assert_same(&s, &back);
    char path[TUS_PATH_MAX];
    memcpy(path, kept.path, sizeof path);
    tus_session_leave(&kept);
    assert_int_equal(tus_session_read(path, &back, &kept, &e), 0);
    assert_same(&s, &back);
    /* Another process writes its own in the meantime: that one is not ours to remove. */
    assert_int_equal(tus_session_write(dir, &s, &second, &e), 0);
    tus_session_remove(&kept);
    assert_int_equal(stat(path, &st), 0);
    tus_session_remove(&second);
    assert_int_equal(stat(path, &st), -1);
    tus_session_remove(&second);
    assert_int_equal(tus_session_read(path, &back, &kept, &e), ERR_NOT_FOUND);
    assert_int_equal(tus_session_peek(path, &back, &e), ERR_IO);
    s.filename[0] = '\0';
    assert_int_equal(tus_session_write(dir, &s, &kept, &e), 0);
    assert_int_equal(tus_session_peek(path, &back, &e) != 0, 1); /* another name, another session */
    assert_int_equal(tus_session_peek(kept.path, &back, &e), 0);
    assert_same(&s, &back);
    tus_session_remove(&kept);
}

static void test_session_name(void **state)
{
    (void)state;
    char a[TUS_SESSION_NAME_LEN + 1];
    char b[TUS_SESSION_NAME_LEN + 1];
    struct tus_session s = sample();
    tus_session_name(&s, a);
    assert_int_equal(strlen(a), TUS_SESSION_NAME_LEN);
    memcpy(s.upload_url, "http://localhost/files/other", sizeof "http://localhost/files/other");
    memcpy(s.object_id, "other", sizeof "other");
    tus_session_name(&s, b);
    assert_string_equal(a, b); /* where it is sent to is not what it is for */
    char *const fields[] = {s.server, s.file, s.project, s.filename, s.checksum};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char saved = fields[i][1];
        fields[i][1] = '~';
        tus_session_name(&s, b);
        assert_string_not_equal(a, b);
        fields[i][1] = saved;
    }
    /* Fields do not run into each other. */
    memcpy(s.project, "de", sizeof "de");
    memcpy(s.filename, "mon\xc3\xbc", sizeof "mon\xc3\xbc");
    tus_session_name(&s, b);
    assert_string_not_equal(a, b);
}

/* Each call of the writing fails once; nothing is left over. */
static int failing_call;

static int fail_open(const char *path, int flags, unsigned mode)
{
    return failing_call == 0 ? -ENOSPC : os_real.open(path, flags, mode);
}
static int64_t fail_pwrite(int fd, const void *p, size_t n, uint64_t offset)
{
    return failing_call == 1 ? -ENOSPC : os_real.pwrite(fd, p, n, offset);
}
static int fail_fsync(int fd)
{
    struct os_stat st;
    bool directory = os_real.fstat(fd, &st) == 0 && S_ISDIR(st.mode);
    return failing_call == (directory ? 5 : 2) ? -EIO : os_real.fsync(fd);
}
static int fail_flock(int fd, int operation)
{
    return failing_call == 3 ? -ENOLCK : os_real.flock(fd, operation);
}
static int fail_rename(const char *from, const char *to)
{
    return failing_call == 4 ? -EIO : os_real.rename(from, to);
}

static int count_names(void *ctx, const char *name)
{
    (void)name;
    ++*(unsigned *)ctx;
    return 0;
}

static void test_session_faults(void **state)
{
    (void)state;
    struct tus_session s = sample();
    struct tus_session back;
    struct tus_kept kept;
    struct os_table table = os_real;
    unsigned before = 0;
    assert_int_equal(os_list(dir, count_names, &before), 0);
    table.open = fail_open;
    table.pwrite = fail_pwrite;
    table.fsync = fail_fsync;
    table.flock = fail_flock;
    table.rename = fail_rename;
    for (failing_call = 0; failing_call < 6; failing_call++) {
        struct err e = {0};
        unsigned after = 0;
        os_install(&table);
        int r = tus_session_write(dir, &s, &kept, &e);
        os_install(NULL);
        assert_int_equal(r, failing_call < 2 ? ERR_NO_SPACE : ERR_IO);
        assert_int_equal(kept.fd, -1);
        assert_int_equal(os_list(dir, count_names, &after), 0);
        assert_int_equal(after, before + (failing_call == 5 ? 1 : 0)); /* renamed, not synced */
    }
    struct err e = {0};
    assert_int_equal(tus_session_write(dir, &s, &kept, &e), 0);
    char path[TUS_PATH_MAX];
    memcpy(path, kept.path, sizeof path);
    tus_session_leave(&kept);
    os_install(&table);
    failing_call = 3;
    assert_int_equal(tus_session_read(path, &back, &kept, &e), ERR_IO);
    assert_int_equal(kept.fd, -1);
    os_install(NULL);
    assert_int_equal(os_unlink(path), 0);
}

static void test_session_directory(void **state)
{
    (void)state;
    struct buf out = {0};
    struct err e = {0};
    struct stat st;
    assert_int_equal(setenv("XDG_STATE_HOME", in_dir("xdg/a"), 1), 0);
    assert_int_equal(tus_session_dir(&out, NULL, false, &e), 0);
    assert_string_equal(out.ptr, in_dir("xdg/a/tallyman/uploads"));
    assert_int_equal(stat(out.ptr, &st), -1);
    buf_clear(&out);
    assert_int_equal(tus_session_dir(&out, NULL, true, &e), 0);
    assert_int_equal(stat(out.ptr, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    buf_clear(&out);
    assert_int_equal(setenv("XDG_STATE_HOME", "relative", 1), 0);
    assert_int_equal(setenv("HOME", "/var/empty", 1), 0);
    assert_int_equal(tus_session_dir(&out, NULL, false, &e), 0);
    assert_string_equal(out.ptr, "/var/empty/.local/state/tallyman/uploads");
    buf_clear(&out);
    assert_int_equal(unsetenv("XDG_STATE_HOME"), 0);
    assert_int_equal(unsetenv("HOME"), 0);
    assert_int_equal(tus_session_dir(&out, NULL, false, &e), ERR_USAGE);
    assert_int_equal(tus_session_dir(&out, "", false, &e), ERR_USAGE);
    assert_int_equal(tus_session_dir(&out, in_dir("given"), true, &e), 0);
    assert_int_equal(stat(out.ptr, &st), 0);
    buf_clear(&out);
    assert_int_equal(tus_session_dir(&out, in_dir("abc/below"), true, &e), ERR_IO);
    buf_clear(&out);
    char *large = calloc(1, TUS_PATH_MAX);
    assert_non_null(large);
    memset(large, 'x', TUS_PATH_MAX - 1);
    assert_int_equal(tus_session_dir(&out, large, true, &e), ERR_USAGE);
    char absolute[TUS_PATH_MAX];
    assert_false(tus_job_absolute(large, absolute));
    free(large);
    buf_free(&out);
    assert_true(tus_job_absolute("/a/../b", absolute));
    assert_string_equal(absolute, "/a/../b");
    assert_true(tus_job_absolute("b", absolute));
    assert_true(absolute[0] == '/' && strcmp(absolute + strlen(absolute) - 2, "/b") == 0);
}

/* ---- progress and signals ---- */

static void test_time_left(void **state)
{
    (void)state;
    char text[160];
    struct progress p;
    progress_start_silent(&p, "sending", 1024, 512);
    progress_text(&p, 768, 1000, text, sizeof text);
    assert_string_equal(text, "sending [##################......]  75% 768 B, 256 B/s, 0:02 left");
    progress_text(&p, 512, 1000, text, sizeof text); /* nothing to reckon with */
    assert_string_equal(text, "sending [############............]  50% 512 B, 0 B/s");
    progress_text(&p, 100, 1000, text, sizeof text); /* the server has less than it had */
    assert_non_null(strstr(text, "100 B, 0 B/s"));
    progress_text(&p, 1024, 1000, text, sizeof text);
    assert_null(strstr(text, "left"));
    p.total = UINT64_C(1) << 30;
    progress_text(&p, 512 + (1 << 20), 4000, text, sizeof text);
    assert_non_null(strstr(text, ", 1:08:12 left"));
    p.total = UINT64_C(1) << 50;
    progress_text(&p, 513, 1000, text, sizeof text);
    assert_null(strstr(text, "left"));
}

/* In a child, whose flag nobody else sees. */
static int signalled(int number, bool ignored)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct sigaction ignore = {.sa_handler = SIG_IGN};
        if (ignored) {
            (void)sigaction(number, &ignore, NULL);
        }
        interrupt_catch();
        if (interrupt_came() || !interrupt_pause_ms(1)) {
            _exit(10);
        }
        (void)raise(number);
        if (interrupt_came() == ignored || interrupt_pause_ms(ignored ? 1 : 100000) != ignored) {
            _exit(11);
        }
        struct tus_content c;
        struct err e = {0};
        int r = tus_content_open(&c, in_dir("abc"), &e);
        if (r != (ignored ? 0 : ERR_REFUSED)) {
            _exit(12);
        }
        (void)raise(number); /* the second one ends it */
        _exit(13);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void test_interrupt(void **state)
{
    (void)state;
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < 3; i++) {
        int status = signalled(numbers[i], false);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), numbers[i]);
    }
    int status = signalled(SIGHUP, true); /* nohup */
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 13);
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) != NULL ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    static const char *const files[] = {"abc", "large", "empty"};
    static const char *const dirs[] = {"given", "xdg/a/tallyman/uploads", "xdg/a/tallyman", "xdg/a",
                                       "xdg"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        (void)unlink(in_dir(files[i]));
    }
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        (void)rmdir(in_dir(dirs[i]));
    }
    return rmdir(dir); /* fails if a test has left something */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base64),
        cmocka_unit_test(test_resolve),
        cmocka_unit_test(test_resolve_of_long_ones),
        cmocka_unit_test(test_object_id),
        cmocka_unit_test(test_number),
        cmocka_unit_test(test_retry_after),
        cmocka_unit_test(test_wait),
        cmocka_unit_test(test_first_line),
        cmocka_unit_test(test_receipt),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_hash_of_what_is_none),
        cmocka_unit_test(test_session),
        cmocka_unit_test(test_session_name),
        cmocka_unit_test(test_session_faults),
        cmocka_unit_test(test_session_directory),
        cmocka_unit_test(test_time_left),
        cmocka_unit_test(test_interrupt),
    };
    return cmocka_run_group_tests_name("tus_client", tests, make_dir, remove_dir);
}
