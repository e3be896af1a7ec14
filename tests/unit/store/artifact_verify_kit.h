/* artifact_verify_kit: a small data directory with an artifact of each kind, ways to damage it, and
 * what verify tells of it.
 *
 * Everything is static; a test includes this once. */
#ifndef TESTS_UNIT_STORE_ARTIFACT_VERIFY_KIT_H
#define TESTS_UNIT_STORE_ARTIFACT_VERIFY_KIT_H

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/log.h"
#include "os/os.h"
#include "store/artifact/delivery_index.h"
#include "store/artifact/verify.h"

#define PATH_BYTES 640
#define SIZE_A     (2u * UPLOAD_PIECE_BYTES + 5u) /* delivered and verified */
#define SIZE_B     1000u                          /* accepted, its package being built */
#define SIZE_P     300u                           /* partial: 100 bytes are synced */

struct world {
    char dir[64];
    char a[UPLOAD_ID_LEN + 1], b[UPLOAD_ID_LEN + 1], p[UPLOAD_ID_LEN + 1], g[UPLOAD_ID_LEN + 1];
    char package[DELIVERY_PACKAGE_LEN + 1];   /* of a */
    char package_b[DELIVERY_PACKAGE_LEN + 1]; /* of b */
    char checksum_a[BLAKE3_HEX_LEN + 1];
    /* of the last look */
    struct artifact_verify_result result;
    struct err e;
    char told[8192], remnants[8192]; /* lines */
    unsigned remnant_lines;
    uint64_t progress_done, progress_total;
};

/* ---- making it ---- */

static inline void path_of(const struct world *w, const char *name, char path[PATH_BYTES])
{
    (void)snprintf(path, PATH_BYTES, "%s/%s", w->dir, name);
}

static inline void write_file(const struct world *w, const char *name, const void *bytes, size_t n)
{
    char path[PATH_BYTES];
    path_of(w, name, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), (ssize_t)n);
    assert_int_equal(close(fd), 0);
}

static inline char *read_file(const struct world *w, const char *name, size_t *n)
{
    char path[PATH_BYTES];
    struct stat st;
    path_of(w, name, path);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    char *bytes = calloc(1, (size_t)st.st_size + 1);
    assert_non_null(bytes);
    assert_int_equal(read(fd, bytes, (size_t)st.st_size), st.st_size);
    assert_int_equal(close(fd), 0);
    *n = (size_t)st.st_size;
    return bytes;
}

static inline void fill(unsigned char *bytes, size_t n, unsigned char seed)
{
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (unsigned char)(i * 7 + i / 251 + seed);
    }
}

static inline void digests_of(const void *bytes, size_t n, struct delivery_digests *out)
{
    struct blake3 b;
    struct md5 m;
    struct sha1 s;
    uint8_t digest[BLAKE3_LEN];
    memset(out, 0, sizeof *out);
    blake3_start(&b);
    blake3_add(&b, bytes, n);
    blake3_end(&b, digest);
    hex_encode(out->blake3, digest, BLAKE3_LEN);
    md5_start(&m);
    md5_add(&m, bytes, n);
    md5_end(&m, digest);
    hex_encode(out->md5, digest, MD5_LEN);
    sha1_start(&s);
    sha1_add(&s, bytes, n);
    sha1_end(&s, digest);
    hex_encode(out->sha1, digest, SHA1_LEN);
}

/* An upload of n bytes of which `written` come, accepted when that is all of them. */
static inline void make_upload(struct uploads *us, size_t n, size_t written, unsigned char seed,
                               const char *checksum, char id[UPLOAD_ID_LEN + 1],
                               struct receipt *receipt)
{
    static struct upload_info info;
    struct delivery_digests d;
    struct upload *u;
    struct err e = {0};
    unsigned char *bytes = malloc(n);
    assert_non_null(bytes);
    fill(bytes, n, seed);
    digests_of(bytes, n, &d);
    memset(&info, 0, sizeof info);
    info.size = n;
    (void)snprintf(info.project, sizeof info.project, "demo");
    (void)snprintf(info.filename, sizeof info.filename, "file %u.bin", seed);
    (void)snprintf(info.checksum, sizeof info.checksum, "%s",
                   checksum != NULL ? checksum : d.blake3);
    assert_int_equal(upload_create(us, &info, true, &e), 0);
    memcpy(id, info.id, sizeof info.id);
    assert_int_equal(upload_open_new(us, &info, &u, &e), 0);
    assert_int_equal(upload_write(u, bytes, written, NULL, &e), 0);
    if (written < n) {
        assert_int_equal(upload_sync(u, &e), 0);
    } else {
        assert_int_equal(upload_accept(u, receipt, NULL, &e),
                         checksum != NULL ? ERR_CHECKSUM_MISMATCH : 0);
    }
    upload_close(u);
    free(bytes);
}

static inline void artifact_of(const struct receipt *r, unsigned char seed,
                               struct delivery_artifact *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->object_id, r->object_id, sizeof out->object_id);
    memcpy(out->checksum, r->checksum, sizeof out->checksum);
    (void)snprintf(out->project, sizeof out->project, "demo");
    (void)snprintf(out->filename, sizeof out->filename, "file %u.bin", seed);
    out->size_bytes = r->size_bytes;
    out->accepted_at = r->accepted_at;
}

/* Both sidecars, and the package sealed, sent and verified in the index. */
static inline void deliver(struct world *w, struct delivery_index *ix,
                           const struct delivery_artifact *a)
{
    static struct delivery_plan plan;
    static const struct artifact_sink to = {.sink = "directory", .directory = "/srv/files"};
    char name[DELIVERY_PACKAGE_LEN + 60];
    struct delivery_digests d;
    struct buf text = {0};
    struct err e = {0};
    size_t n;
    (void)snprintf(name, sizeof name, "uploads/%s", w->a);
    char *bytes = read_file(w, name, &n);
    digests_of(bytes, n, &d);
    free(bytes);
    assert_int_equal(delivery_plan_begin(&plan, a, &to, &e), 0);
    plan.file[0].size = n;
    plan.file[0].digests = d;
    delivery_manifest_put(&text, a, &d);
    plan.file[1].size = text.len;
    digests_of(text.ptr, text.len, &plan.file[1].digests);
    memcpy(w->package, plan.package_id, sizeof w->package);
    (void)snprintf(name, sizeof name, "packages/%s.manifest.jsonl", w->package);
    write_file(w, name, text.ptr, text.len);
    buf_clear(&text);
    delivery_plan_put(&text, &plan);
    (void)snprintf(name, sizeof name, "packages/%s.plan.json", w->package);
    write_file(w, name, text.ptr, text.len);
    buf_free(&text);
    assert_int_equal(delivery_index_seal(ix, &plan, 1000, 1000, &e), 0);
    assert_int_equal(delivery_index_claim(ix, &plan, 1001, &e), 0);
    assert_int_equal(delivery_index_sent(ix, &plan, 1002, &e), 0);
    assert_int_equal(delivery_index_verified(ix, &plan, 1003, &e), 0);
}

static inline void add(struct delivery_index *ix, const struct delivery_artifact *a)
{
    struct err e = {0};
    assert_int_equal(delivery_index_begin(ix, &e), 0);
    assert_int_equal(delivery_index_add(ix, a, 500, &e), 0);
    assert_int_equal(delivery_index_commit(ix, &e), 0);
}

static inline void make_world(struct world *w)
{
    static struct receipt receipt_a, receipt_b, unused;
    static struct delivery_artifact artifact;
    struct uploads_options options = {.data = w->dir, .issuer = "http://127.0.0.1:8080"};
    struct uploads *us;
    struct delivery_index *ix;
    struct err e = {0};
    char zeros[BLAKE3_HEX_LEN + 1];
    char path[PATH_BYTES];
    bool rebuilt;
    memset(w, 0, sizeof *w);
    memset(zeros, '0', BLAKE3_HEX_LEN);
    zeros[BLAKE3_HEX_LEN] = '\0';
    (void)snprintf(w->dir, sizeof w->dir, "/tmp/tallyman-verify-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    assert_int_equal(uploads_open(&options, &us, &e), 0);
    make_upload(us, SIZE_A, SIZE_A, 1, NULL, w->a, &receipt_a);
    make_upload(us, SIZE_B, SIZE_B, 2, NULL, w->b, &receipt_b);
    make_upload(us, SIZE_P, 100, 3, NULL, w->p, &unused);
    make_upload(us, 50, 50, 4, zeros, w->g, &unused);
    uploads_close(us);
    memcpy(w->checksum_a, receipt_a.checksum, sizeof w->checksum_a);
    path_of(w, "packages", path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(delivery_index_open(w->dir, &ix, &rebuilt, &e), 0);
    artifact_of(&receipt_a, 1, &artifact);
    add(ix, &artifact);
    deliver(w, ix, &artifact);
    artifact_of(&receipt_b, 2, &artifact);
    add(ix, &artifact);
    delivery_package_id(&artifact, w->package_b);
    delivery_index_close(ix);
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st;
    (void)type;
    (void)where;
    return remove(path);
}

static inline void free_world(struct world *w)
{
    assert_int_equal(nftw(w->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static inline int setup(void **state)
{
    struct world *w = malloc(sizeof *w);
    assert_non_null(w);
    make_world(w);
    *state = w;
    return 0;
}

static inline int teardown(void **state)
{
    free_world(*state);
    free(*state);
    return 0;
}

/* ---- looking ---- */

static inline void add_line(char *to, size_t size, const char *text)
{
    size_t n = strlen(to);
    (void)snprintf(to + n, size - n, "%s%s", n > 0 ? "\n" : "", text);
}

static inline void on_found(void *ctx, const char *text)
{
    struct world *w = ctx;
    add_line(w->told, sizeof w->told, text);
}

static inline void on_remnant(void *ctx, const char *name)
{
    struct world *w = ctx;
    w->remnant_lines++;
    add_line(w->remnants, sizeof w->remnants, name);
}

static inline void on_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct world *w = ctx;
    assert_true(done >= w->progress_done);
    w->progress_done = done;
    w->progress_total = total;
}

static inline int verify(struct world *w)
{
    const struct artifact_verify_hooks hooks = {on_found, on_remnant, on_progress, w};
    w->told[0] = w->remnants[0] = '\0';
    w->remnant_lines = 0;
    w->progress_done = w->progress_total = 0;
    return artifact_verify(w->dir, &hooks, &w->result, &w->e);
}

/* "%A" stands for the id of a, %B, %P, %G; %K for the package, %L for that of b. */
static inline void put_names(const struct world *w, const char *from, char *to, size_t size)
{
    size_t n = 0;
    for (; *from != '\0'; from++) {
        const char *text = NULL;
        if (*from == '%') {
            switch (from[1]) {
            case 'A':
                text = w->a;
                break;
            case 'B':
                text = w->b;
                break;
            case 'P':
                text = w->p;
                break;
            case 'G':
                text = w->g;
                break;
            case 'K':
                text = w->package;
                break;
            case 'L':
                text = w->package_b;
                break;
            default:
                break;
            }
        }
        if (text != NULL) {
            n += (size_t)snprintf(to + n, size - n, "%s", text);
            from++;
        } else {
            to[n++] = *from;
        }
        assert_true(n < size);
    }
    to[n] = '\0';
}

/* '*' at the end of a line stands for anything. */
static inline void same_lines(const struct world *w, const char *have, const char *want)
{
    char names[4096];
    put_names(w, want, names, sizeof names);
    const char *h = have;
    const char *n = names;
    while (*h != '\0' || *n != '\0') {
        size_t hl = strcspn(h, "\n");
        size_t nl = strcspn(n, "\n");
        bool any = nl > 0 && n[nl - 1] == '*';
        if (any ? hl < nl - 1 || memcmp(h, n, nl - 1) != 0 : hl != nl || memcmp(h, n, nl) != 0) {
            fail_msg("told:\n%s\nwanted:\n%s", have, names);
        }
        h += hl + (h[hl] == '\n');
        n += nl + (n[nl] == '\n');
    }
}

static inline void expect(struct world *w, const char *told, const char *remnants)
{
    if (verify(w) != 0) {
        fail_msg("%s", w->e.text);
    }
    same_lines(w, w->told, told);
    same_lines(w, w->remnants, remnants);
}

/* ---- damaging ---- */

static inline void flip(const struct world *w, const char *name, size_t at)
{
    char named[512];
    size_t n;
    put_names(w, name, named, sizeof named);
    char *bytes = read_file(w, named, &n);
    assert_true(at < n);
    bytes[at] = (char)(bytes[at] ^ 1);
    write_file(w, named, bytes, n);
    free(bytes);
}

static inline void cut(const struct world *w, const char *name, off_t size)
{
    char named[512];
    char path[PATH_BYTES];
    put_names(w, name, named, sizeof named);
    path_of(w, named, path);
    assert_int_equal(truncate(path, size), 0);
}

static inline void drop(const struct world *w, const char *name)
{
    char named[512];
    char path[PATH_BYTES];
    put_names(w, name, named, sizeof named);
    path_of(w, named, path);
    assert_int_equal(unlink(path), 0);
}

static inline void put(const struct world *w, const char *name, const char *text)
{
    char named[512];
    put_names(w, name, named, sizeof named);
    write_file(w, named, text, strlen(text));
}

static inline void move(const struct world *w, const char *from, const char *to)
{
    char named[512];
    char old[PATH_BYTES];
    char new[PATH_BYTES];
    put_names(w, from, named, sizeof named);
    path_of(w, named, old);
    put_names(w, to, named, sizeof named);
    path_of(w, named, new);
    assert_int_equal(rename(old, new), 0);
}

/* Replaces the one `from` in a file; both have the same length. */
static inline void edit(const struct world *w, const char *name, const char *from, const char *to)
{
    char named[512];
    size_t n;
    put_names(w, name, named, sizeof named);
    char *bytes = read_file(w, named, &n);
    char *at = memmem(bytes, n, from, strlen(from));
    assert_non_null(at);
    assert_int_equal(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
    write_file(w, named, bytes, n);
    free(bytes);
}

static inline void sql(const struct world *w, const char *text)
{
    struct sqlite3 *db;
    char path[PATH_BYTES];
    char named[2048];
    char *why = NULL;
    put_names(w, text, named, sizeof named);
    path_of(w, DELIVERY_FILE, path);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, named, NULL, NULL, &why) != SQLITE_OK) {
        fail_msg("%s", why);
    }
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

#endif
