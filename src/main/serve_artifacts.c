/* The issuer is written into every receipt for good. Who listens on this machine only and sets none
 * gets the address that it listens on; who listens beyond it must choose, and until then the door
 * makes no uploads (spec/artifacts.md, decisions).
 *
 * Power failure, kill -9: the delivery process sees the end of our pipe and ends. What it had not
 * recorded it finds again at its next start. */
#include "main/serve_artifacts.h"

#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"

/* HOST:PORT names this machine alone; so does the Unix socket. */
static bool is_local(const char *listen)
{
    struct slice s = slice_cstr(listen);
    return s.len == 0 || slice_starts(s, SLICE("127.")) || slice_starts(s, SLICE("[::1]:")) ||
           slice_starts(s, SLICE("localhost:"));
}

static void choose_issuer(struct artifacts *a)
{
    const struct config *c = a->config;
    const char *colon = strrchr(c->listen, ':');
    int host = colon == NULL ? 0 : (int)(colon - c->listen);
    if (c->issuer[0] != '\0') {
        (void)snprintf(a->issuer, sizeof a->issuer, "%s", c->issuer);
    } else if (!is_local(c->listen)) {
        log_line(LOG_WARN, "serve",
                 "issuer is not set, and we listen beyond this machine: uploads are refused, since "
                 "every receipt would name nobody");
    } else if (c->listen[0] == '\0') {
        (void)snprintf(a->issuer, sizeof a->issuer, "http://localhost");
    } else if (strcmp(colon == NULL ? "" : colon, ":0") == 0) {
        (void)snprintf(a->issuer, sizeof a->issuer, "http://%.*s", host, c->listen);
    } else {
        (void)snprintf(a->issuer, sizeof a->issuer, "http://%s", c->listen);
    }
}

int artifacts_open(struct artifacts *a, const struct config *c, struct store *store, struct err *e)
{
    *a = (struct artifacts){.config = c};
    choose_issuer(a);
    struct artifact_options options = {.data = c->data,
                                       .issuer = a->issuer,
                                       .public_url = c->public_url,
                                       .upload_bytes_max = c->upload_bytes_max,
                                       .min_free_bytes = c->min_free_bytes,
                                       .low_space_status = (unsigned)c->low_space_status,
                                       .retention_ms = c->partial_upload_retention_ms,
                                       .uploads_max = (unsigned)c->uploads_max,
                                       .address_uploads_max = (unsigned)c->uploads_per_address_max,
                                       .project_percent = (unsigned)c->upload_share_project,
                                       .address_percent = (unsigned)c->upload_share_address};
    int r = http_networks_parse(c->trusted_proxies, &options.proxies, e);
    return r != 0 ? r : artifact_new(&options, store, &a->door, e);
}

/* One more word of the vector, NULL behind. execve's vector is not const; it is not written to. */
static void add_word(struct artifacts *a, const char *word)
{
    ensure(a->args + 1 < ARTIFACTS_ARGS_MAX);
    a->argv[a->args++] = (char *)(uintptr_t)word;
    a->argv[a->args] = NULL;
}

static void add_option(struct artifacts *a, const char *name, const char *value)
{
    add_word(a, name);
    add_word(a, value);
}

/* Path and vector of `tallyman deliver`. */
static int make_command(struct artifacts *a, struct err *e)
{
    const struct config *c = a->config;
    static_assert(CHILD_PARENT_FD == 3, "the vector says so");
    int r = os_program(a->program, sizeof a->program);
    if (r != 0) {
        return err_os(e, r, "find the program", "/proc/self/exe");
    }
    (void)snprintf(a->answer_ms, sizeof a->answer_ms, "%llu",
                   (unsigned long long)c->archive_answer_ms);
    (void)snprintf(a->stall_ms, sizeof a->stall_ms, "%llu",
                   (unsigned long long)c->archive_stall_ms);
    (void)snprintf(a->concurrency, sizeof a->concurrency, "%llu",
                   (unsigned long long)c->delivery_concurrency);
    (void)snprintf(a->unseen_ms, sizeof a->unseen_ms, "%llu",
                   (unsigned long long)c->delivery_unseen_ms);
    a->args = 0;
    add_word(a, "tallyman");
    add_word(a, "deliver");
    add_option(a, "--data", c->data);
    add_option(a, "--parent-fd", "3");
    add_option(a, "--archive-s3-url", c->archive_s3_url);
    add_option(a, "--archive-metadata-url", c->archive_metadata_url);
    add_option(a, "--archive-answer-ms", a->answer_ms);
    add_option(a, "--archive-stall-ms", a->stall_ms);
    if (c->public_url[0] != '\0' || c->issuer[0] != '\0') {
        add_option(a, "--contact", c->public_url[0] != '\0' ? c->public_url : c->issuer);
    }
    add_option(a, "--concurrency", a->concurrency);
    add_option(a, "--unseen-ms", a->unseen_ms);
    if (!c->sandbox) {
        add_word(a, "--no-sandbox");
    }
    return 0;
}

int artifacts_add_command(const struct config *c, struct spawner *s, struct err *e)
{
    struct artifacts a = {.config = c};
    int r = make_command(&a, e);
    return r != 0 ? r : spawner_add(s, a.program, a.argv, e);
}

static int start_deliver(struct artifacts *a, struct err *e)
{
    int r = make_command(a, e);
    if (r != 0) {
        return r;
    }
    child_init(&a->child, a->program, a->argv);
    if (a->spawner != NULL) {
        child_set_spawn(&a->child, spawner_spawn, a->spawner);
    }
    child_tick(&a->child);
    a->watching = true;
    return 0;
}

int artifacts_start(struct artifacts *a, struct http_server *server, struct err *e)
{
    int r = artifact_start(a->door, server, e);
    if (r != 0) {
        return r;
    }
    if (!a->config->deliver) {
        log_line(LOG_INFO, "serve",
                 "deliver is off: accepted files wait for `tallyman deliver --data %s`",
                 a->config->data);
        return 0;
    }
    return start_deliver(a, e);
}

void artifacts_stopping(struct artifacts *a)
{
    artifact_stopping(a->door);
}

void artifacts_tick(struct artifacts *a)
{
    if (a->watching) {
        child_tick(&a->child);
    }
}

void artifacts_partials(void *ctx, struct buf *out)
{
    struct artifacts *a = ctx;
    artifact_put_partials(a->door, out);
}

void artifacts_status(void *ctx, struct manage_artifacts *out)
{
    struct artifacts *a = ctx;
    struct artifact_status st = {0};
    artifact_get_status(a->door, &st);
    *out = (struct manage_artifacts){.writers = st.writers,
                                     .partial_uploads = st.partial_uploads,
                                     .partial_bytes = st.partial_bytes,
                                     .reserved_bytes = st.reserved_bytes,
                                     .scanned_ms = st.scanned_ms,
                                     .low_space = st.low_space,
                                     .scanned = st.scanned};
    if (!a->watching) {
        (void)snprintf(out->deliver_state, sizeof out->deliver_state, "off");
        (void)snprintf(out->deliver_detail, sizeof out->deliver_detail,
                       "switched off (deliver = off)");
        return;
    }
    (void)snprintf(out->deliver_state, sizeof out->deliver_state, "%s",
                   child_state_name(a->child.state));
    out->deliver_restarts = a->child.restarts;
    if (a->child.last_exit[0] != '\0') {
        (void)snprintf(out->deliver_detail, sizeof out->deliver_detail, "last end: %s",
                       a->child.last_exit);
    }
}

void artifacts_stop(struct artifacts *a)
{
    if (a->watching) {
        child_end(&a->child);
        a->watching = false;
    }
    if (a->door != NULL) {
        artifact_stop(a->door);
    }
}

void artifacts_close(struct artifacts *a)
{
    artifact_free(a->door);
    a->door = NULL;
}
