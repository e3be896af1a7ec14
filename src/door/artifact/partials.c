/* partials: sums by project, sorted by name. When there is no room for another project, its uploads
 * are only counted. Nothing fails here, nothing is on the disk. */
#include "door/artifact/partials.h"

#include <string.h>

#include "base/ensure.h"
#include "json/write.h"

/* The row of the project; NULL: there is no room. */
static struct partial *row_of(struct partials *p, const char *project)
{
    unsigned low = 0, high = p->count;

    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        int order = strcmp(project, p->row[middle].project);
        if (order == 0) {
            return &p->row[middle];
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    if (p->count == PARTIALS_MAX) {
        return NULL;
    }
    memmove(&p->row[low + 1], &p->row[low], (p->count - low) * sizeof *p->row);
    p->count++;
    p->row[low] = (struct partial){.uploads = 0};
    ensure(strlen(project) < sizeof p->row[low].project);
    memcpy(p->row[low].project, project, strlen(project) + 1);
    return &p->row[low];
}

void partials_add(struct partials *p, const struct upload_seen *seen, bool stale)
{
    struct partial *row = row_of(p, seen->project);

    if (row == NULL) {
        p->left_out++;
    } else if (stale) {
        row->stale++;
        row->stale_bytes += seen->length;
    } else {
        row->uploads++;
        row->received_bytes += seen->length;
        row->declared_bytes += seen->size;
    }
}

static void put_number(struct buf *b, const char *name, uint64_t v)
{
    json_put_name(b, name);
    buf_put_u64(b, v);
}

void partials_put(const struct partials *p, struct buf *b)
{
    json_put_name(b, "partial_projects");
    buf_put_char(b, '[');
    for (unsigned i = 0; i < p->count; i++) {
        const struct partial *row = &p->row[i];
        buf_put_cstr(b, i == 0 ? "{" : ",{");
        json_put_name(b, "project");
        json_put_string(b, slice_cstr(row->project));
        put_number(b, "uploads", row->uploads);
        put_number(b, "received_bytes", row->received_bytes);
        put_number(b, "declared_bytes", row->declared_bytes);
        put_number(b, "stale", row->stale);
        put_number(b, "stale_bytes", row->stale_bytes);
        buf_put_char(b, '}');
    }
    buf_put_char(b, ']');
    put_number(b, "partial_left_out", p->left_out);
}
