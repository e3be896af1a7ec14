/* What went wrong, in words and with the path of the place; only made when something did. See
 * canon.c. */
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "json/canon_internal.h"
#include "json/scan.h"

#define PATH_CUT "..."

struct canon_cursor canon_fail(struct canon *c, int code, const char *at, const char *text)
{
    ensure(c->code == 0);
    ensure(at >= c->in);
    ensure(at <= c->end);
    c->code = code;
    c->fault = at;
    c->fault_text = text;
    return (struct canon_cursor){.at = at, .op = NULL};
}

/* A path in the making; once a piece does not fit, it ends with PATH_CUT and takes nothing more. */
struct path {
    char *text;
    size_t len;
    bool cut;
};

static void add(struct path *p, const char *piece, size_t len)
{
    size_t room = CANON_PATH_MAX - sizeof PATH_CUT - p->len;
    if (p->cut) {
        return;
    }
    if (len > room) {
        /* Never in the midst of a UTF-8 sequence. */
        len = room;
        while (len > 0 && ((unsigned char)piece[len] & 0xC0) == 0x80) {
            len--;
        }
        p->cut = true;
    }
    memcpy(p->text + p->len, piece, len);
    p->len += len;
    if (p->cut) {
        memcpy(p->text + p->len, PATH_CUT, sizeof PATH_CUT - 1);
        p->len += sizeof PATH_CUT - 1;
    }
    p->text[p->len] = '\0';
}

/* Names that need no quotes in a path: letters, digits, `_`, `$` and `-`, not a digit in front. */
static bool is_simple(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char c = name[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
        if (!letter && (i == 0 || (!scan_is_digit(c) && c != '-'))) {
            return false;
        }
    }
    return len != 0;
}

static void add_name(const struct canon *c, struct path *p, const struct canon_member *m)
{
    const char *name = c->base + m->name;
    size_t len = m->name_len & ~CANON_NAME_ODD;
    if (is_simple(name, len)) {
        if (p->len != 0) {
            add(p, ".", 1);
        }
        add(p, name, len);
        return;
    }
    add(p, "[\"", 2);
    add(p, name, len);
    add(p, "\"]", 2);
}

static void add_frame(const struct canon *c, struct path *p, uint32_t i)
{
    const struct canon_frame *f = &c->frames[i];
    if (!f->object) {
        char index[16];
        int n = snprintf(index, sizeof index, "[%u]", (unsigned)f->index);
        add(p, index, (size_t)n);
        return;
    }
    size_t members = i + 1 < c->depth ? c->frames[i + 1].first_member : c->member_count;
    if (members > f->first_member) {
        add_name(c, p, &c->members[members - 1]);
    }
}

void canon_explain(const struct canon *c, struct canon_error *e)
{
    ensure(c->code != 0);
    *e = (struct canon_error){.offset = (uint64_t)(c->fault - c->in)};
    struct path p = {.text = e->path};
    bool outer_only = c->fault_in_container || c->fault_is_name;
    uint32_t depth = c->depth - (outer_only && c->depth != 0);
    for (uint32_t i = 0; i < depth; i++) {
        add_frame(c, &p, i);
    }
    if (c->fault_is_name) {
        add_name(c, &p, &c->fault_name);
    }
    int n = snprintf(e->text, sizeof e->text, "%s", c->fault_text);
    ensure(n > 0 && (size_t)n < sizeof e->text);
}
