/* The server may write below its data directory and nowhere else, start nothing, listen where it is
 * told to, and open TCP connections to the one ClickHouse that is named, if one is. It reads its
 * data, and what libraries read. Its children live outside: `tallyman deliver` writes to
 * directories that are named while it runs, and the engine has rules of its own; each lays on what
 * it can bear (verb_deliver.c, tallyman_engine.c).
 *
 * Power failure: nothing here is durable but the data directory's making, which journal_open syncs:
 * for that it may list the directory above. */
#include "main/serve_sandbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "main/serve_artifacts.h"
#include "main/serve_delivery.h"
#include "net/net.h"
#include "os/os.h"

#define PATH_BYTES    4300
#define PORT_DNS      53
#define MODE_DATA_DIR 0700

static uint16_t port_behind(const char *text)
{
    const char *colon = strrchr(text, ':');
    unsigned long port = colon == NULL ? 0 : strtoul(colon + 1, NULL, 10);

    return port > UINT16_MAX ? 0 : (uint16_t)port;
}

static void parent_of(const char *path, char out[PATH_BYTES])
{
    size_t n = strlen(path);

    ensure(n < PATH_BYTES);
    while (n > 0 && path[n - 1] == '/') {
        n--;
    }
    while (n > 0 && path[n - 1] != '/') {
        n--;
    }
    (void)snprintf(out, PATH_BYTES, "%.*s", (int)n, path);
    if (n == 0) {
        (void)snprintf(out, PATH_BYTES, ".");
    }
}

static void fill(struct sandbox *s, const struct config *c, char parent[PATH_BYTES])
{
    parent_of(c->data, parent);
    sandbox_need(s, c->data, SANDBOX_READ | SANDBOX_WRITE);
    sandbox_need(s, parent, SANDBOX_LIST);
    sandbox_allow_libraries(s);
    if (c->listen[0] != '\0') {
        s->bind[s->binds++] = port_behind(c->listen);
    }
    if (c->clickhouse_url[0] != '\0') {
        s->connect[s->connects++] = net_url_port(c->clickhouse_url);
        s->connect[s->connects++] = PORT_DNS; /* long answers of a resolver come by TCP */
    }
}

int serve_sandbox(const struct config *c, struct spawner *spawner, struct sandbox_state *state,
                  struct err *e)
{
    struct sandbox s = {.name = "serve", .signals = true, .inet = true};
    char parent[PATH_BYTES];
    int r;

    spawner_init(spawner);
    if (!c->sandbox) {
        return 0;
    }
    r = os_mkdir_exist_ok(c->data, MODE_DATA_DIR);
    if (r != 0) {
        return err_os(e, r, "make directory", c->data);
    }
    r = artifacts_add_command(c, spawner, e);
    if (r == 0) {
        r = delivery_add_commands(c, spawner, e);
    }
    if (r == 0) {
        r = spawner_start(spawner, e);
    }
    if (r == 0) {
        fill(&s, c, parent);
        sandbox_enter(&s, state);
    }
    return r;
}
