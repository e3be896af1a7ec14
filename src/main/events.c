/* Finding the ends of events needs only strings and depth; whether the text between them is JSON,
 * and of the kind the server takes, the strict parser says (json/canon), so a mistake is found
 * before anything of its batch is sent, with its line.
 *
 * The last line of a file counts without a line end too: an object cut in the middle cannot pass
 * the parser, so a file that is being written never gives half an event. All conditions here are
 * answers. */
#include "main/events.h"

#include <string.h>
#include <sys/stat.h>

#include "base/ensure.h"
#include "os/os.h"

#define AT_END (-1)

int events_open(struct events *in, const char *path, struct err *e)
{
    bool standard = strcmp(path, "-") == 0;
    in->name = standard ? "standard input" : path;
    in->fd = standard ? 0 : -1;
    in->own_fd = !standard;
    in->state = EVENTS_UNKNOWN;
    in->line = 1;
    in->read_bytes = 0;
    in->size_bytes = 0;
    in->at = 0;
    in->len = 0;
    buf_init(&in->raw, EVENTS_EVENT_MAX);
    buf_init(&in->canonical, EVENTS_EVENT_MAX);
    in->canon = canon_new();
    if (in->canon == NULL) {
        return err_set(e, ERR_NO_MEMORY, "out of memory");
    }
    if (!standard) {
        in->fd = os_open(path, O_RDONLY, 0);
        if (in->fd < 0) {
            return err_os(e, in->fd, "open", path);
        }
    }
    struct os_stat st;
    if (os_fstat(in->fd, &st) == 0 && S_ISREG(st.mode)) {
        in->size_bytes = st.size;
    }
    return 0;
}

void events_close(struct events *in)
{
    if (in->own_fd && in->fd >= 0) {
        (void)os_close(in->fd);
    }
    in->fd = -1;
    canon_free(in->canon);
    in->canon = NULL;
    buf_free(&in->raw);
    buf_free(&in->canonical);
}

static int bad(const struct events *in, uint64_t line, const char *reason, struct err *e)
{
    return err_set(e, ERR_JSON, "%.150s:%llu: %s", in->name, (unsigned long long)line, reason);
}

/* Makes sure that unread bytes are there: 1, 0 at the end of the file, or ERR_IO. */
static int fill(struct events *in, struct err *e)
{
    if (in->at < in->len) {
        return 1;
    }
    int64_t n = os_read(in->fd, in->chunk, sizeof in->chunk);
    if (n < 0) {
        return err_os(e, (int)n, "read", in->name);
    }
    in->at = 0;
    in->len = (size_t)n;
    in->read_bytes += (uint64_t)n;
    return n > 0;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Skips white space. The next byte stays unread: 1, 0 at the end, or ERR_IO. */
static int skip_space(struct events *in, struct err *e)
{
    for (;;) {
        int r = fill(in, e);
        if (r != 1) {
            return r;
        }
        for (; in->at < in->len; in->at++) {
            if (!is_space(in->chunk[in->at])) {
                return 1;
            }
            in->line += in->chunk[in->at] == '\n';
        }
    }
}

/* Moves n unread bytes to the event. */
static int take(struct events *in, size_t n, uint64_t line, struct err *e)
{
    ensure(n <= in->len - in->at);
    buf_put(&in->raw, in->chunk + in->at, n);
    in->at += n;
    if (!in->raw.failed) {
        return 0;
    }
    return bad(in, line, "the event is larger than the 32 MiB a request may have", e);
}

/* The rest of the line, without its end. */
static int take_line(struct events *in, uint64_t line, struct err *e)
{
    for (;;) {
        int r = fill(in, e);
        if (r != 1) {
            return r;
        }
        size_t left = in->len - in->at;
        const char *end = memchr(in->chunk + in->at, '\n', left);
        size_t n = end != NULL ? (size_t)(end - (in->chunk + in->at)) : left;
        r = take(in, n, line, e);
        if (r != 0) {
            return r;
        }
        if (end != NULL) {
            in->at++;
            in->line++;
            return 0;
        }
    }
}

/* From an unread '{' to the brace that closes it, by strings and depth only. */
static int take_object(struct events *in, uint64_t line, struct err *e)
{
    uint64_t depth = 0;
    bool in_string = false;
    bool escaped = false;
    for (;;) {
        int r = fill(in, e);
        if (r != 1) {
            return r == 0 ? bad(in, line, "the file ends inside this event", e) : r;
        }
        size_t i = in->at;
        bool done = false;
        for (; i < in->len && !done; i++) {
            char c = in->chunk[i];
            in->line += c == '\n';
            if (in_string) {
                in_string = c != '"' || escaped;
                escaped = c == '\\' && !escaped;
            } else if (c == '"') {
                in_string = true;
            } else if (c == '{' || c == '[') {
                depth++;
            } else if (c == '}' || c == ']') {
                depth--;
                done = depth == 0;
            }
        }
        r = take(in, i - in->at, line, e);
        if (r != 0 || done) {
            return r;
        }
    }
}

/* Between two elements of the array: 1 when another element begins (unread), 0 behind the closing
 * bracket. */
static int array_step(struct events *in, struct err *e)
{
    int r = skip_space(in, e);
    if (r != 1) {
        return r == 0 ? bad(in, in->line, "the file ends inside the array", e) : r;
    }
    char c = in->chunk[in->at];
    if (c == ']') {
        in->at++;
        in->state = EVENTS_END;
        r = skip_space(in, e);
        return r == 1 ? bad(in, in->line, "text behind the array", e) : r;
    }
    if (in->state == EVENTS_ARRAY_NEXT) {
        if (c != ',') {
            return bad(in, in->line, "expected ',' or ']' behind an event", e);
        }
        in->at++;
        r = skip_space(in, e);
        if (r != 1) {
            return r == 0 ? bad(in, in->line, "the file ends inside the array", e) : r;
        }
    }
    in->state = EVENTS_ARRAY_NEXT;
    return 1;
}

static int canonical_event(struct events *in, uint64_t line, struct slice *event, struct err *e)
{
    struct canon_error at = {0};
    buf_clear(&in->canonical);
    int r = canon_json(in->canon, buf_slice(&in->raw), &in->canonical, &at);
    if (r == ERR_NO_MEMORY) {
        return bad(in, line, "no memory for this event, or its canonical form is over 32 MiB", e);
    }
    if (r != 0) {
        uint64_t at_line = line;
        for (size_t i = 0; i < at.offset && i < in->raw.len; i++) {
            at_line += in->raw.ptr[i] == '\n';
        }
        char reason[300];
        struct err text = {0};
        (void)err_set(&text, r, "%.150s%s%.100s%s", at.text, at.path[0] != '\0' ? " (at " : "",
                      at.path, at.path[0] != '\0' ? ")" : "");
        memcpy(reason, text.text, sizeof reason);
        reason[sizeof reason - 1] = '\0';
        return bad(in, at_line, reason, e);
    }
    *event = buf_slice(&in->canonical);
    return 1;
}

int events_next(struct events *in, struct slice *event, uint64_t *line, struct err *e)
{
    buf_clear(&in->raw);
    if (in->state == EVENTS_END) {
        return 0;
    }
    int r = skip_space(in, e);
    if (r < 0) {
        return r;
    }
    if (in->state == EVENTS_UNKNOWN && r == 1) {
        bool array = in->chunk[in->at] == '[';
        in->at += array;
        in->state = array ? EVENTS_ARRAY_FIRST : EVENTS_LINES;
    }
    bool array = in->state == EVENTS_ARRAY_FIRST || in->state == EVENTS_ARRAY_NEXT;
    r = array ? array_step(in, e) : r;
    if (r != 1) {
        in->state = EVENTS_END;
        return r;
    }
    *line = in->line;
    if (in->chunk[in->at] == '\xef' && in->line == 1) {
        return bad(in, *line, "the file begins with a byte order mark; save it as plain UTF-8", e);
    }
    if (in->chunk[in->at] != '{') {
        return bad(in, *line, "an event must be a JSON object", e);
    }
    r = array ? take_object(in, *line, e) : take_line(in, *line, e);
    return r == 0 ? canonical_event(in, *line, event, e) : r;
}
