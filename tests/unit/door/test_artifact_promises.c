/* test_artifact_promises: the room that uploads are promised: never more than there is, in shares;
 * it lapses, comes again, and ends with its upload. How much is free is ours to say. */
#include <errno.h>

#include "tests/unit/door/artifact_kit.h"

#define MIB   (UINT64_C(1) << 20)
#define OTHER ROOM_OTHER_BYTES
#define NONE  ((struct slice){0})

static const char text[] = "The quick brown fox jumps over the lazy dog.";
#define TEXT ((struct slice){.ptr = text, .len = sizeof text - 1})

static struct os_table table;
static const struct os_table *below;
/* What every thread is told; changed and read under the lock. */
static pthread_mutex_t facts = PTHREAD_MUTEX_INITIALIZER;
static struct os_disk disk, side;
static bool side_is_mounted;
static pthread_mutex_t hung = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool hangs;
static atomic_uint disk_asked;
static _Atomic uint64_t clock_ahead_ms;

static bool is_side(const char *path)
{
    const char *name = strrchr(path, '/');
    return name != NULL && strcmp(name, "/packages") == 0;
}

static int some_disk(const char *path, struct os_disk *out)
{
    disk_asked++;
    if (hangs) {
        (void)pthread_mutex_lock(&hung);
        (void)pthread_mutex_unlock(&hung);
    }
    (void)pthread_mutex_lock(&facts);
    *out = is_side(path) ? side : disk;
    (void)pthread_mutex_unlock(&facts);
    return 0;
}

/* The upload that ends, once, while it is looked at: its bytes' length is known by then. */
static char ends[256];

static void end_now(const char *path)
{
    size_t n = strlen(ends);
    if (n > 0 && strncmp(path, ends, n) == 0 && strcmp(path + n, ".gone") == 0) {
        assert_int_equal(truncate(ends, (off_t)(60 * MIB)), 0);
        ends[0] = '\0';
    }
}

static int some_stat(const char *path, struct os_stat *st)
{
    end_now(path);
    int r = below->stat(path, st);
    (void)pthread_mutex_lock(&facts);
    if (is_side(path) && side_is_mounted) {
        *st = (struct os_stat){.device = 99};
        r = 0;
    }
    (void)pthread_mutex_unlock(&facts);
    return r;
}

static void set_free(uint64_t bytes)
{
    (void)pthread_mutex_lock(&facts);
    disk.free_bytes = bytes;
    (void)pthread_mutex_unlock(&facts);
}

static void set_side(bool mounted, uint64_t free_bytes, uint64_t free_inodes)
{
    (void)pthread_mutex_lock(&facts);
    side_is_mounted = mounted;
    side = (struct os_disk){
        .bytes = 1000 * MIB, .free_bytes = free_bytes, .inodes = 1000, .free_inodes = free_inodes};
    (void)pthread_mutex_unlock(&facts);
}

static uint64_t some_clock(void)
{
    return below->clock_mono_ns() + clock_ahead_ms * 1000000;
}

static int setup(void **state)
{
    (void)state;
    below = os_current();
    table = *below;
    table.disk = some_disk;
    table.stat = some_stat;
    table.clock_mono_ns = some_clock;
    disk = (struct os_disk){.bytes = 1000 * MIB, .free_bytes = 110 * MIB};
    side_is_mounted = false;
    hangs = false;
    clock_ahead_ms = 0;
    os_install(&table);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    os_install(NULL);
    return 0;
}

static const struct room_owner one = {.project = "one", .address = ""};

static struct room *room_new(uint64_t least, unsigned project, unsigned address)
{
    struct room *r = calloc(1, sizeof *r);
    assert_non_null(r);
    room_init(r, "/", least, project, address);
    return r;
}

static void room_free(struct room *r)
{
    room_destroy(r);
    free(r);
}

/* A creation of its own, promised and idle; false: it does not fit. */
static bool create(struct room *r, unsigned n, const struct room_owner *owner, uint64_t bytes)
{
    char id[UPLOAD_ID_LEN + 1];
    struct room_promise *p;
    struct err e;
    int result = room_take(r, owner, bytes - OTHER, &p, &e);
    if (result != 0) {
        assert_int_equal(result, ERR_LOW_SPACE);
        assert_true(e.text[0] != '\0');
        assert_null(p);
        return false;
    }
    (void)snprintf(id, sizeof id, "%032x", n);
    room_name(r, p, id);
    room_leave(r, p, bytes - OTHER);
    return true;
}

static void forget(struct room *r, unsigned n)
{
    char id[UPLOAD_ID_LEN + 1];
    (void)snprintf(id, sizeof id, "%032x", n);
    room_forget(r, id);
}

static struct room_promise *again(struct room *r, unsigned n, uint64_t bytes)
{
    char id[UPLOAD_ID_LEN + 1];
    struct room_promise *p;
    struct err e;
    (void)snprintf(id, sizeof id, "%032x", n);
    int result = room_take_again(r, id, &one, bytes - OTHER, &p, &e);
    assert_true(result == 0 || result == ERR_LOW_SPACE);
    return p;
}

/* All promises fit together, to the byte. */
static void test_never_more_than_there_is(void **state)
{
    struct room *r = room_new(10 * MIB, 100, 100);
    (void)state;
    assert_true(create(r, 1, &one, 60 * MIB));
    assert_false(create(r, 2, &one, 40 * MIB + 1));
    assert_true(create(r, 2, &one, 40 * MIB));
    assert_false(create(r, 3, &one, OTHER + 1));
    assert_int_equal(room_promised(r), 100 * MIB);
    assert_int_equal(metric_get(METRIC_ARTIFACT_RESERVED), 100 * MIB);
    /* What has come is not promised any more, and not free any more. */
    struct room_promise *p = again(r, 1, 60 * MIB);
    room_set(r, p, 20 * MIB - OTHER);
    disk.free_bytes -= 40 * MIB;
    assert_false(create(r, 3, &one, OTHER + 1));
    disk.free_bytes += MIB;
    assert_true(create(r, 3, &one, MIB));
    room_leave(r, p, 20 * MIB - OTHER);
    forget(r, 3);
    forget(r, 3);
    p = again(r, 2, 40 * MIB);
    room_drop(r, p);
    assert_int_equal(room_promised(r), 20 * MIB);
    assert_int_equal(room_count(r), 1);
    room_free(r);
}

/* 5 % of the file system, at most 10 GiB; or what was set. */
static void test_the_default_bound(void **state)
{
    (void)state;
    assert_int_equal(room_least(0, 1000 * MIB), 50 * MIB);
    assert_int_equal(room_least(0, UINT64_C(1) << 50), UINT64_C(10) << 30);
    assert_int_equal(room_least(7, 1000 * MIB), 7);
    assert_int_equal(room_least_inodes(1000), 50);
    assert_int_equal(room_least_inodes(UINT64_C(1) << 40), 10000);
    struct room *r = room_new(0, 100, 100);
    assert_false(create(r, 1, &one, 60 * MIB + 1));
    assert_true(create(r, 1, &one, 60 * MIB));
    disk.free_bytes = 49 * MIB;
    assert_false(create(r, 2, &one, OTHER));
    room_free(r);
}

static void test_inodes_are_looked_at(void **state)
{
    struct room *r = room_new(1, 100, 100);
    (void)state;
    disk.inodes = 1000;
    disk.free_inodes = 50 + 2 * ROOM_INODES;
    assert_true(create(r, 1, &one, MIB));
    assert_true(create(r, 2, &one, MIB));
    assert_false(create(r, 3, &one, MIB));
    forget(r, 1);
    assert_true(create(r, 3, &one, MIB));
    room_free(r);
}

/* One project, or one client, cannot have everything; one that goes on is let. */
static void test_shares(void **state)
{
    static const struct room_owner a = {.project = "one", .address = "192.0.2.1"};
    static const struct room_owner b = {.project = "two", .address = "192.0.2.1"};
    static const struct room_owner c = {.project = "two", .address = "192.0.2.2"};
    static const struct room_owner here = {.project = "three", .address = ""};
    struct room *r = room_new(10 * MIB, 60, 50);
    (void)state;
    assert_false(create(r, 1, &a, 51 * MIB)); /* the address's */
    assert_true(create(r, 1, &a, 50 * MIB));
    assert_false(create(r, 2, &b, MIB));
    assert_false(create(r, 2, &one, 11 * MIB)); /* the project's */
    assert_true(create(r, 2, &one, 10 * MIB));
    assert_false(create(r, 3, &a, MIB));
    assert_true(create(r, 3, &c, 30 * MIB));
    assert_false(create(r, 4, &here, 11 * MIB)); /* all of it */
    assert_true(create(r, 4, &here, 10 * MIB));
    assert_int_equal(room_promised(r), 100 * MIB);
    forget(r, 1);
    assert_true(create(r, 5, &b, 30 * MIB)); /* 60 of the project */
    assert_false(create(r, 6, &b, MIB));
    struct room_promise *p = again(r, 1, 20 * MIB); /* 30 of "one" */
    assert_non_null(p);
    room_drop(r, p);
    p = again(r, 7, 15 * MIB);
    struct room_promise *q = again(r, 8, 5 * MIB);
    assert_true(p != NULL && q != NULL);
    room_drop(r, p);
    room_drop(r, q);
    room_free(r);
}

/* Without a byte for five minutes the room is others', until there is enough again. */
static void test_a_promise_lapses_and_comes_again(void **state)
{
    struct room *r = room_new(10 * MIB, 100, 100);
    (void)state;
    assert_true(create(r, 1, &one, 60 * MIB));
    clock_ahead_ms = ROOM_IDLE_MS - 10000;
    struct room_promise *p = again(r, 1, 60 * MIB); /* whoever is on it keeps it, however long */
    assert_false(create(r, 2, &one, 60 * MIB));
    clock_ahead_ms += 2 * ROOM_IDLE_MS;
    assert_false(create(r, 2, &one, 60 * MIB));
    room_leave(r, p, 50 * MIB - OTHER);
    assert_int_equal(room_promised(r), 50 * MIB);
    clock_ahead_ms += ROOM_IDLE_MS - 10000;
    assert_false(create(r, 2, &one, 60 * MIB));
    clock_ahead_ms += 10000;
    assert_true(create(r, 2, &one, 60 * MIB));
    assert_int_equal(room_promised(r), 60 * MIB);
    assert_null(again(r, 1, 50 * MIB));
    forget(r, 2);
    p = again(r, 1, 50 * MIB);
    assert_non_null(p);
    /* It ends while somebody is on it. */
    forget(r, 1);
    room_leave(r, p, 1);
    assert_int_equal(room_count(r), 0);
    room_free(r);
}

static void test_after_a_restart_what_fits_is_promised(void **state)
{
    struct room *r = room_new(10 * MIB, 10, 10);
    char id[UPLOAD_ID_LEN + 1];
    (void)state;
    for (unsigned n = 1; n <= 4; n++) {
        (void)snprintf(id, sizeof id, "%032x", n);
        room_restore(r, id, &one, 40 * MIB - OTHER);
        room_restore(r, id, &one, 40 * MIB - OTHER);
    }
    assert_int_equal(room_count(r), 2);
    assert_int_equal(room_promised(r), 80 * MIB);
    room_free(r);
}

/* The first round may come upon the files of a creation before the creation has said its id. */
static void test_a_creation_that_a_round_saw_first_is_promised_once(void **state)
{
    static const char id[] = "0123456789abcdef0123456789abcdef";
    struct room *r = room_new(10 * MIB, 100, 100);
    struct room_promise *p;
    struct err e;
    (void)state;
    assert_int_equal(room_take(r, &one, 40 * MIB - OTHER, &p, &e), 0);
    room_restore(r, id, &one, 40 * MIB - OTHER);
    room_name(r, p, id);
    assert_int_equal(room_promised(r), 40 * MIB);
    assert_int_equal(room_count(r), 1);
    room_leave(r, p, 40 * MIB - OTHER);
    room_forget(r, id);
    assert_int_equal(room_promised(r), 0);
    room_free(r);
}

static void test_promises_are_bounded(void **state)
{
    struct room *r = room_new(1, 100, 100);
    (void)state;
    disk.free_bytes = UINT64_C(1) << 50;
    for (unsigned n = 0; n < ROOM_PROMISES_MAX; n++) {
        assert_true(create(r, n, &one, OTHER + 1));
    }
    assert_false(create(r, ROOM_PROMISES_MAX, &one, OTHER + 1));
    forget(r, 77);
    assert_true(create(r, 77, &one, OTHER + 1));
    clock_ahead_ms = ROOM_IDLE_MS;
    assert_int_equal(room_count(r), 0);
    room_free(r);
}

/* However little each is of: neither a project nor an address has all promises. What goes on is
 * bound by its address alone. */
static void test_the_number_of_promises_is_shared(void **state)
{
    const unsigned quarter = ROOM_PROMISES_MAX / 4;
    const struct room_owner near = {.project = "one", .address = ""};
    const struct room_owner far = {.project = "two", .address = "192.0.2.7"};
    const struct room_owner other = {.project = "one", .address = "192.0.2.8"};
    const struct room_owner mixed = {.project = "one", .address = "192.0.2.7"};
    struct room *r = room_new(1, 50, 25);
    struct room_promise *p;
    struct err e;
    unsigned n = 0;
    (void)state;
    disk.free_bytes = UINT64_C(1) << 50;
    for (; n < quarter; n++) {
        assert_true(create(r, n, &far, OTHER + 1));
    }
    assert_false(create(r, n, &far, OTHER + 1));
    assert_false(create(r, n, &mixed, OTHER + 1));
    for (; n < 3 * quarter; n++) {
        assert_true(create(r, n, &near, OTHER + 1));
    }
    assert_false(create(r, n, &near, OTHER + 1));
    assert_false(create(r, n, &other, OTHER + 1));
    /* Uploads of before, which go on: their project has had its share. */
    assert_int_equal(room_take_again(r, "ffffffffffffffffffffffffffffffff", &far, 1, &p, &e),
                     ERR_LOW_SPACE);
    assert_non_null(strstr(e.text, "client"));
    assert_int_equal(room_take_again(r, "fffffffffffffffffffffffffffffffe", &other, 1, &p, &e), 0);
    room_drop(r, p);
    /* One that has ended makes place for one. */
    forget(r, 0);
    assert_true(create(r, n, &far, OTHER + 1));
    assert_false(create(r, n + 1, &far, OTHER + 1));
    assert_int_equal(room_count(r), 3 * quarter);
    room_free(r);
}

/* ---- the door ---- */

static const char *creation_of(uint64_t size, char headers[2000])
{
    (void)snprintf(headers, 2000, "%s", "");
    (void)kit_creation(headers, TEXT, "");
    char *at = strstr(headers, "Upload-Length: ");
    assert_non_null(at);
    char *end = strstr(at, "\r\n");
    char rest[2000];
    (void)snprintf(rest, sizeof rest, "%s", end);
    (void)snprintf(at, 2000 - (size_t)(at - headers), "Upload-Length: %llu%s",
                   (unsigned long long)size, rest);
    return headers;
}

static unsigned create_by_tus(struct kit *k, uint64_t size)
{
    char headers[2000];
    unsigned status = kit_ask(k, "POST", "/files", creation_of(size, headers), NONE);
    if (status == 201) {
        memcpy(k->id, kit_header(k, "Location").ptr + 7, UPLOAD_ID_LEN);
    }
    return status;
}

/* T23: what cannot end beside what is under way does not begin; what is under way goes on; a
 * promise that lapsed is asked for again, and who asks keeps the upload. */
static void test_t23_creations_and_appends(void **state)
{
    struct artifact_options options = kit_options();
    char first[sizeof((struct kit *)NULL)->id];
    (void)state;
    options.min_free_bytes = 10 * MIB;
    struct kit *k = kit_new_with(&options, NULL);
    assert_int_equal(create_by_tus(k, 60 * MIB), 201);
    memcpy(first, k->id, sizeof first);
    assert_int_equal(create_by_tus(k, 60 * MIB), 429);
    expect_tus(k, 429, "LOW_SPACE");
    expect_header(k, "Retry-After", "60");
    assert_int_equal(kit_header(k, "Location").len, 0);
    assert_int_equal(kit_patch(k, 0, TEXT), 204); /* the first goes on */
    expect_header(k, "Upload-Offset", "44");
    struct artifact_status st;
    artifact_get_status(k->artifact, &st);
    assert_int_equal(st.reserved_bytes, 60 * MIB - TEXT.len + OTHER);
    clock_ahead_ms += ROOM_IDLE_MS;
    assert_int_equal(create_by_tus(k, 60 * MIB), 201);
    char second[sizeof first];
    memcpy(second, k->id, sizeof second);
    memcpy(k->id, first, sizeof first);
    assert_int_equal(kit_patch(k, TEXT.len, TEXT), 429);
    expect_tus(k, 429, "LOW_SPACE");
    expect_header(k, "Upload-Offset", "44");
    expect_header(k, "Retry-After", "60");
    assert_int_not_equal(attempts_last_ms(&k->artifact->attempts, first), 0);
    assert_int_equal(kit_patch(k, TEXT.len, NONE), 204); /* nothing needs no room */
    expect_offset(k, TEXT.len, false);
    set_free(170 * MIB); /* space is freed */
    assert_int_equal(kit_patch(k, TEXT.len, TEXT), 204);
    expect_header(k, "Upload-Offset", "88");
    assert_int_equal(room_count(&k->artifact->room), 2);
    /* An end gives the rest back: the receipt, a refusal, the removal. */
    kit_create(k, TEXT);
    assert_int_equal(room_count(&k->artifact->room), 3);
    assert_int_equal(kit_patch(k, 0, TEXT), 204);
    assert_true(kit_has_receipt(k));
    assert_int_equal(room_count(&k->artifact->room), 2);
    kit_create(k, TEXT);
    assert_int_equal(kit_patch(k, 0, slice_of("The quick brown fox jumps over the lazy cat.", 44)),
                     422);
    assert_int_equal(room_count(&k->artifact->room), 2);
    k->artifact->options.retention_ms = 0;
    cleaner_round(k->artifact);
    assert_int_equal(room_count(&k->artifact->room), 0);
    kit_free(k);
}

/* The whole file in one request: refused unread, accepted, or refused with nothing left of it. */
static void test_creations_with_their_file(void **state)
{
    struct artifact_options options = kit_options();
    char headers[2000];
    (void)state;
    options.min_free_bytes = 110 * MIB - OTHER - TEXT.len;
    struct kit *k = kit_new_with(&options, NULL);
    (void)kit_creation(headers, TEXT, UPLOAD_TYPE);
    assert_int_equal(kit_ask(k, "POST", "/files", headers, TEXT), 201);
    assert_true(kit_has_receipt(k));
    assert_int_equal(room_count(&k->artifact->room), 0);
    assert_int_equal(kit_ask(k, "POST", "/files", headers,
                             slice_of("The quick brown fox jumps over the lazy cat.", 44)),
                     422);
    assert_int_equal(room_count(&k->artifact->room), 0);
    set_free(110 * MIB - 1);
    assert_int_equal(kit_ask(k, "POST", "/files", headers, TEXT), 429);
    assert_int_equal(room_count(&k->artifact->room), 0);
    kit_free(k);
}

static void test_a_start_promises_again(void **state)
{
    struct artifact_options options = kit_options();
    (void)state;
    options.min_free_bytes = 10 * MIB;
    struct kit *k = kit_new_with(&options, NULL);
    assert_int_equal(create_by_tus(k, 60 * MIB), 201);
    assert_int_equal(kit_patch(k, 0, TEXT), 204);
    kit_close(k);
    kit_open(k, &options, NULL);
    assert_int_equal(room_promised(&k->artifact->room), 0);
    cleaner_round(k->artifact);
    assert_int_equal(room_promised(&k->artifact->room), 60 * MIB - TEXT.len + OTHER);
    assert_int_equal(create_by_tus(k, 60 * MIB), 429);
    cleaner_round(k->artifact); /* not again: what lapsed is lapsed */
    clock_ahead_ms += ROOM_IDLE_MS;
    cleaner_round(k->artifact);
    assert_int_equal(room_promised(&k->artifact->room), 0);
    kit_free(k);
}

/* What has its bytes by the time it would be promised room needs none. */
static void test_a_start_does_not_promise_what_has_ended(void **state)
{
    struct artifact_options options = kit_options();
    (void)state;
    options.min_free_bytes = 10 * MIB;
    struct kit *k = kit_new_with(&options, NULL);
    assert_int_equal(create_by_tus(k, 60 * MIB), 201);
    assert_int_equal(kit_patch(k, 0, TEXT), 204);
    kit_close(k);
    kit_open(k, &options, NULL);
    (void)snprintf(ends, sizeof ends, "%s/uploads/%s", k->dir, k->id);
    cleaner_round(k->artifact);
    assert_int_equal(ends[0], '\0');
    assert_int_equal(room_promised(&k->artifact->room), 0);
    kit_free(k);
}

/* ---- the gate ---- */

static unsigned wanted_asks;

static bool is_asked(struct kit *k)
{
    (void)k;
    return disk_asked >= wanted_asks;
}

static bool is_low(struct kit *k)
{
    return kit_patch(k, 44, NONE) == 429;
}

static bool is_fine(struct kit *k)
{
    return kit_patch(k, 44, NONE) == 204;
}

/* With its thread: the loop asks nobody; a file system that hangs stops only what needs it. */
static void test_the_loop_never_asks_the_disk(void **state)
{
    struct artifact_options options = kit_options();
    struct err e = {0};
    (void)state;
    options.min_free_bytes = 10 * MIB;
    struct kit *k = kit_new_with(&options, NULL);
    assert_int_equal(artifact_start(k->artifact, k->server, &e), 0);
    assert_int_equal(create_by_tus(k, MIB), 201);
    assert_int_equal(kit_patch(k, 0, TEXT), 204);
    set_free(10 * MIB - 1);
    kit_await(k, is_low);
    set_free(10 * MIB); /* equal is fine */
    kit_await(k, is_fine);
    set_free(110 * MIB);
    (void)pthread_mutex_lock(&hung);
    hangs = true;
    wanted_asks = disk_asked + 1;
    kit_await(k, is_asked); /* its thread hangs */
    for (int i = 0; i < 20; i++) {
        assert_int_equal(kit_patch(k, 44, NONE), 204);
        expect_offset(k, 44, false);
    }
    clock_ahead_ms += 3600000; /* no news for long */
    assert_int_equal(kit_patch(k, 44, NONE), 503);
    expect_tus(k, 503, "LOW_SPACE");
    expect_header(k, "Retry-After", "60");
    expect_offset(k, 44, false);
    (void)pthread_mutex_unlock(&hung);
    kit_await(k, is_fine);
    kit_free(k);
}

/* Hole 22: a mount of its own for packages that is full stops what could not go any further. */
static void test_hole_22_packages_elsewhere(void **state)
{
    struct artifact_options options = kit_options();
    (void)state;
    options.min_free_bytes = 10 * MIB;
    struct kit *k = kit_new_with(&options, NULL);
    set_side(false, 0, 0);
    kit_create(k, TEXT); /* no mount of its own */
    set_side(true, 16 * MIB - 1, 50);
    assert_int_equal(kit_patch(k, 0, TEXT), 429);
    expect_tus(k, 429, "LOW_SPACE");
    set_side(true, 16 * MIB, 50);
    assert_int_equal(kit_patch(k, 0, slice_of(text, 9)), 204);
    set_side(true, 16 * MIB, 49);
    assert_int_equal(kit_patch(k, 9, slice_of(text + 9, 9)), 429);
    set_side(true, 16 * MIB, 50);
    assert_int_equal(kit_patch(k, 9, slice_of(text + 9, 9)), 204);
    kit_free(k);
}

/* What only another machine can promise is said at the start, of each such place. */
static void test_another_machines_disk_is_named(void **state)
{
    static const struct {
        uint64_t kind;
        const char *said;
    } kinds[] = {{0x6969, " is on NFS: "}, {0xFF534D42, " is on CIFS: "}, {0xEF53, NULL}};
    static char log[65536];
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct artifact_options options = kit_options();
        FILE *f = tmpfile();
        int old = dup(2);
        assert_non_null(f);
        disk.kind = kinds[i].kind;
        assert_int_equal(dup2(fileno(f), 2), 2);
        struct kit *k = kit_new_with(&options, NULL);
        struct err e = {0};
        assert_int_equal(space_start(k->artifact, &e), 0);
        kit_free(k);
        assert_int_equal(dup2(old, 2), 2);
        assert_int_equal(close(old), 0);
        rewind(f);
        log[fread(log, 1, sizeof log - 1, f)] = '\0';
        assert_int_equal(fclose(f), 0);
        if (kinds[i].said != NULL) {
            assert_non_null(strstr(log, kinds[i].said));
        } else {
            assert_null(strstr(log, "is up to its server"));
        }
    }
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_never_more_than_there_is),
        T(test_the_default_bound),
        T(test_inodes_are_looked_at),
        T(test_shares),
        T(test_a_promise_lapses_and_comes_again),
        T(test_after_a_restart_what_fits_is_promised),
        T(test_a_creation_that_a_round_saw_first_is_promised_once),
        T(test_promises_are_bounded),
        T(test_the_number_of_promises_is_shared),
        T(test_t23_creations_and_appends),
        T(test_creations_with_their_file),
        T(test_a_start_promises_again),
        T(test_a_start_does_not_promise_what_has_ended),
        T(test_the_loop_never_asks_the_disk),
        T(test_hole_22_packages_elsewhere),
        T(test_another_machines_disk_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
