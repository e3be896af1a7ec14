/* archive_kit: a small Internet Archive for the tests of its adapter: check_limit, metadata, PUT,
 * and a script of what goes wrong with which PUT. Include once. */
#ifndef TESTS_UNIT_SINK_ARCHIVE_KIT_H
#define TESTS_UNIT_SINK_ARCHIVE_KIT_H

#include "base/hash.h"
#include "tests/unit/net/raw_kit.h"

#define FAKE_FILES_MAX 64
#define FAKE_PUTS_MAX  64

enum {
    FAKE_STORES,       /* 200 */
    FAKE_ANSWERS,      /* reads the body and says `say` */
    FAKE_REFUSES,      /* says `say` to the head, instead of 100, and reads on */
    FAKE_RESETS,       /* reads a little, says `say`, and closes with bytes unread */
    FAKE_LOSES,        /* stores, and closes without an answer */
    FAKE_DROPS,        /* reads a little and resets, without a word */
    FAKE_ETAG_OF_OTHER /* stores, and tells of other bytes */
};

struct fake_act {
    int what;
    const char *say; /* the answer from its status line on, or XML alone with status */
    unsigned status;
};

struct fake_file {
    char item[128], name[256];
    uint64_t size;
    char md5[MD5_HEX_LEN + 1], sha1[SHA1_HEX_LEN + 1];
    unsigned looks; /* that do not show it yet */
};

struct fake_put {
    char head[12000];
    char path[512];
    uint64_t got;
};

struct fake {
    struct raw raw;
    pthread_mutex_t lock;               /* of all below */
    struct fake_act act[FAKE_PUTS_MAX]; /* of the n-th PUT */
    const char *limit;     /* the answer of check_limit, from its status line on; NULL: go */
    const char *metadata;  /* the same of a look; NULL: what is stored */
    const char *redirect;  /* PUTs are sent on to there (a URL's place) */
    bool redirect_limit;   /* and check_limit */
    bool tasks;            /* are pending */
    unsigned hidden_looks; /* that do not show a new file */
    struct fake_file file[FAKE_FILES_MAX];
    unsigned files;
    struct fake_put put[FAKE_PUTS_MAX];
    unsigned puts, looks, limits;
    char limit_head[2000];
};

struct fake_body {
    struct md5 md5;
    struct sha1 sha1;
    uint64_t got;
};

static inline void fake_take(void *ctx, const void *p, size_t n)
{
    struct fake_body *b = ctx;
    md5_add(&b->md5, p, n);
    sha1_add(&b->sha1, p, n);
    b->got += n;
}

static inline void fake_say(struct raw_connection *c, unsigned status, const char *head,
                            const char *body)
{
    struct buf text = {0}; /* one piece: a reset must not overtake the second */
    buf_printf(&text, "HTTP/1.1 %u X\r\n%sContent-Length: %zu\r\n\r\n%s", status, head,
               strlen(body), body);
    buf_put_char(&text, '\0');
    raw_write(c, text.ptr);
    buf_free(&text);
}

static inline void fake_store(struct fake *f, const char *path, const struct fake_body *b)
{
    struct fake_file *file = &f->file[f->files++];
    struct md5 md5 = b->md5;
    struct sha1 sha1 = b->sha1;
    uint8_t digest[SHA1_LEN];
    const char *slash = strchr(path + 1, '/');
    assert_non_null(slash);
    assert_true(f->files <= FAKE_FILES_MAX);
    assert_true((size_t)(slash - path) < sizeof file->item);
    assert_true(strlen(slash) < sizeof file->name);
    memset(file, 0, sizeof *file);
    memcpy(file->item, path + 1, (size_t)(slash - path) - 1);
    memcpy(file->name, slash + 1, strlen(slash));
    file->size = b->got;
    md5_end(&md5, digest);
    hex_encode(file->md5, digest, MD5_LEN);
    sha1_end(&sha1, digest);
    hex_encode(file->sha1, digest, SHA1_LEN);
    file->looks = f->hidden_looks;
}

static inline void fake_look(struct fake *f, struct raw_connection *c, const char *item)
{
    struct buf body = {0};
    unsigned seen = 0;
    f->looks++;
    if (f->metadata != NULL) {
        raw_write(c, f->metadata);
        return;
    }
    buf_put_cstr(&body, "{\"created\":1,\"item_size\":5,\"metadata\":{\"identifier\":\"x\","
                        "\"uploader\":\"us@example.org\"},\"files\":[{\"name\":\"x_files.xml\","
                        "\"source\":\"metadata\",\"md5\":\"0\"}");
    for (unsigned i = 0; i < f->files; i++) {
        struct fake_file *file = &f->file[i];
        if (strcmp(file->item, item) != 0) {
            continue;
        }
        if (file->looks > 0) {
            file->looks--;
            continue;
        }
        seen++;
        buf_printf(&body,
                   ",{\"name\":\"%s\",\"source\":\"original\",\"size\":\"%llu\",\"md5\":\"%s\","
                   "\"crc32\":\"0\",\"sha1\":\"%s\",\"mtime\":\"1\"}",
                   file->name, (unsigned long long)file->size, file->md5, file->sha1);
    }
    buf_put_cstr(&body, f->tasks ? "],\"tasks\":[{}]}" : "]}");
    buf_put_char(&body, '\0');
    fake_say(c, 200, "Content-Type: application/json\r\n", seen > 0 ? body.ptr : "{}");
    buf_free(&body);
}

static inline void fake_act_on(struct fake *f, struct raw_connection *c, struct fake_put *put,
                               const struct fake_act *act, uint64_t length)
{
    struct fake_body b = {0};
    char etag[128];
    md5_start(&b.md5);
    sha1_start(&b.sha1);
    if (act->what == FAKE_REFUSES) {
        fake_say(c, act->status, "", act->say);
        shutdown(c->fd, SHUT_WR);
        raw_hang(c);
        return;
    }
    raw_write(c, "HTTP/1.1 100 Continue\r\n\r\n");
    if (act->what == FAKE_RESETS || act->what == FAKE_DROPS) {
        (void)raw_body(c, length / 4, NULL, NULL);
        if (act->what == FAKE_RESETS) {
            fake_say(c, act->status, "", act->say);
        } else {
            raw_reset(c);
        }
        return;
    }
    if (!raw_body(c, length, fake_take, &b)) {
        return;
    }
    (void)pthread_mutex_lock(&f->lock);
    put->got = b.got;
    if (act->what != FAKE_ANSWERS) {
        fake_store(f, put->path, &b);
        (void)snprintf(etag, sizeof etag, "ETag: \"%s\"\r\n",
                       act->what == FAKE_ETAG_OF_OTHER ? "d41d8cd98f00b204e9800998ecf8427e"
                                                       : f->file[f->files - 1].md5);
    }
    (void)pthread_mutex_unlock(&f->lock);
    if (act->what == FAKE_ANSWERS) {
        fake_say(c, act->status, "", act->say);
    } else if (act->what != FAKE_LOSES) {
        fake_say(c, 200, etag, "");
    }
}

static inline void fake_redirect(struct fake *f, struct raw_connection *c, const char *path)
{
    char to[700];
    (void)snprintf(to, sizeof to, "Location: %s%s\r\n", f->redirect, path);
    fake_say(c, 307, to, "");
}

static inline void fake_serve(void *ctx, struct raw_connection *c)
{
    struct fake *f = ctx;
    char *head = raw_head(c);
    char method[8] = "";
    char path[512] = "";
    if (head == NULL) {
        return;
    }
    (void)sscanf(head, "%7s %511s", method, path);
    (void)pthread_mutex_lock(&f->lock);
    if (strcmp(method, "GET") == 0) {
        if (strncmp(path, "/metadata/", 10) == 0) {
            fake_look(f, c, path + 10);
        } else {
            f->limits++;
            if (f->redirect != NULL && f->redirect_limit) {
                fake_redirect(f, c, path);
                (void)pthread_mutex_unlock(&f->lock);
                free(head);
                return;
            }
            (void)snprintf(f->limit_head, sizeof f->limit_head, "%s", head);
            if (f->limit != NULL) {
                raw_write(c, f->limit);
            } else {
                fake_say(c, 200, "", "{\"bucket\":\"x\",\"over_limit\":0,\"detail\":{}}");
            }
        }
        (void)pthread_mutex_unlock(&f->lock);
        free(head);
        return;
    }
    assert_true(f->puts < FAKE_PUTS_MAX);
    struct fake_put *put = &f->put[f->puts];
    struct fake_act act = f->act[f->puts++];
    (void)snprintf(put->head, sizeof put->head, "%s", head);
    (void)snprintf(put->path, sizeof put->path, "%s", path);
    uint64_t length = raw_length(head);
    free(head);
    if (f->redirect != NULL) {
        fake_redirect(f, c, path);
        (void)pthread_mutex_unlock(&f->lock);
        return;
    }
    (void)pthread_mutex_unlock(&f->lock);
    fake_act_on(f, c, put, &act, length);
}

static inline struct fake *fake_start(void)
{
    struct fake *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(pthread_mutex_init(&f->lock, NULL), 0);
    f->raw.script = fake_serve;
    f->raw.ctx = f;
    raw_start(&f->raw);
    return f;
}

/* What the test wrote is seen by the fake, and the other way round. */
static inline void fake_sync(struct fake *f)
{
    raw_settle(&f->raw);
    assert_int_equal(pthread_mutex_lock(&f->lock), 0);
    assert_int_equal(pthread_mutex_unlock(&f->lock), 0);
}

static inline void fake_stop(struct fake *f)
{
    raw_stop(&f->raw);
    assert_int_equal(pthread_mutex_destroy(&f->lock), 0);
    free(f);
}

#endif
