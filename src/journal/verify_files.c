/* What files there are, beside a running server too: the inventory is taken again until nothing
 * moved while it was taken. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "journal/verify_internal.h"
#include "os/os.h"

#define INVENTORY_NS UINT64_C(10000000000)

void verify_put_name(struct buf *b, const char *name)
{
    if (b->len > 0) {
        buf_put_char(b, ',');
    }
    buf_put_char(b, '"');
    buf_put_cstr(b, name); /* names of ours or of plain files: filtered by plain_name */
    buf_put_char(b, '"');
}

void verify_fail(struct verify *v, enum verify_fault f, const char *file, bool has_offset,
                 uint64_t offset, const char *text)
{
    struct verify_report *r = v->report;
    if (r->fault != VERIFY_NONE) {
        return;
    }
    r->ok = false;
    r->fault = f;
    (void)snprintf(r->fault_file, sizeof r->fault_file, "%s", file);
    r->fault_has_offset = has_offset;
    r->fault_offset = offset;
    (void)snprintf(r->fault_text, sizeof r->fault_text, "%s", text);
}

int verify_probe_live(struct verify *v, struct err *e)
{
    int fd = os_open(v->layout.lock, O_RDONLY, 0);
    if (fd == -ENOENT) {
        return 0;
    }
    if (fd < 0) {
        return err_os(e, fd, "open", "lock");
    }
    int r = os_flock(fd, LOCK_SH | LOCK_NB);
    (void)os_close(fd);
    v->report->live = r == -EWOULDBLOCK;
    return r == 0 || r == -EWOULDBLOCK ? 0 : err_os(e, r, "ask for", "lock");
}

/* The tail's descriptor and the list of closed generations, of one moment. *same: nothing moved
 * meanwhile. */
static int look(struct verify *v, bool *same, struct err *e)
{
    struct os_stat before = {0};
    struct os_stat after = {0};
    int fd = os_open(v->layout.tail, O_RDONLY, 0);
    if (fd < 0 && fd != -ENOENT) {
        return err_os(e, fd, "open", "tail.ndjson");
    }
    v->tail_fd = fd;
    int r = fd >= 0 ? os_fstat(fd, &before) : 0;
    if (r < 0) {
        return err_os(e, r, "stat", "tail.ndjson");
    }
    v->tail_size = before.size;
    r = inventory_take(&v->layout, &v->inventory, e);
    v->closed = v->inventory.closed;
    v->closed_count = v->inventory.count;
    uint64_t manifest_bytes = v->inventory.manifest.file_bytes;
    if (r == ERR_CORRUPT) {
        verify_fail(v, VERIFY_PENDING, "journal/pending", false, 0, e->text);
        *same = true;
        return 0;
    }
    /* Beside a server a missing tail is a rotation between its two renames: the list may be of
     * before or after. And a generation that was sealed since the manifest was read would be in
     * neither list: its record came before its plain file went. */
    int again = os_stat(v->layout.tail, &after);
    *same =
        fd < 0 ? again == -ENOENT && !v->report->live : again == 0 && after.inode == before.inode;
    again = os_stat(v->layout.manifest, &after);
    *same = *same && again == 0 && after.size == manifest_bytes;
    return r;
}

void verify_forget_inventory(struct verify *v)
{
    if (v->tail_fd >= 0) {
        (void)os_close(v->tail_fd);
    }
    v->tail_fd = -1;
    inventory_free(&v->inventory);
    v->closed = NULL;
    v->closed_count = 0;
}

int verify_take_inventory(struct verify *v, struct err *e)
{
    uint64_t deadline_ns = os_clock_mono_ns() + INVENTORY_NS;
    for (;;) {
        bool same = false;
        int r = look(v, &same, e);
        if (r != 0 || same) {
            return r;
        }
        verify_forget_inventory(v);
        if (os_clock_mono_ns() > deadline_ns) {
            return err_set(e, ERR_IO, "the journal changes faster than it can be listed");
        }
    }
}

int verify_note_orphan(void *ctx, const char *name)
{
    struct verify *v = ctx;
    static const char *const known[] = {"manifest.jsonl", "tail.ndjson", "pending", "segments"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i]) == 0) {
            return 0;
        }
    }
    if (strcmp(name, "tail.next") == 0 && v->report->live) {
        return 0;
    }
    for (const char *p = name; *p != '\0'; p++) {
        if ((unsigned char)*p < 0x20 || (unsigned char)*p > 0x7e || *p == '"' || *p == '\\') {
            name = "(a name that is not plain ASCII)";
            break;
        }
    }
    verify_put_name(&v->report->orphans, name);
    return 0;
}
