/* files: what libchdb reads before it reads anything else.
 *
 * Without a configuration file libchdb starts with all rights for everybody, and it takes
 * ./config.xml without being asked: so the process works in a directory that is emptied at every
 * start, and names its own file. All paths in the files are relative to that directory, so that no
 * byte of the data directory's name has to be quoted.
 *
 * users.xml is the wall (boot.c proves it at every start): user `default`, as whom every connection
 * comes, may read q.events and may take the role `writer`; user `viewer`, as whom the view q.events
 * reads, sees the rows whose project is the connection's log_comment, and nothing else.
 *
 * Power failure: both files are written before they are needed, at each start, by replacing; a torn
 * one is replaced at the next start. Stops: any failed call. */
#include "engine/files.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/events_schema.h"
#include "os/os.h"

#define PATH_BYTES 4096

static const char config_xml[] =
    "<clickhouse>\n"
    "<users_config>../users.xml</users_config>\n"
    "<timezone>UTC</timezone>\n"
    "<max_server_memory_usage>%llu</max_server_memory_usage>\n"
    "<max_server_memory_usage_to_ram_ratio>0.9</max_server_memory_usage_to_ram_ratio>\n"
    "<max_thread_pool_size>200</max_thread_pool_size>\n"
    "<max_thread_pool_free_size>4</max_thread_pool_free_size>\n"
    "<background_pool_size>2</background_pool_size>\n"
    "<background_merges_mutations_concurrency_ratio>1"
    "</background_merges_mutations_concurrency_ratio>\n"
    "<background_move_pool_size>1</background_move_pool_size>\n"
    "<background_fetches_pool_size>1</background_fetches_pool_size>\n"
    "<background_common_pool_size>2</background_common_pool_size>\n"
    "<background_schedule_pool_size>4</background_schedule_pool_size>\n"
    "<background_buffer_flush_schedule_pool_size>1</background_buffer_flush_schedule_pool_size>\n"
    "<background_message_broker_schedule_pool_size>1"
    "</background_message_broker_schedule_pool_size>\n"
    "<background_distributed_schedule_pool_size>1</background_distributed_schedule_pool_size>\n"
    "<mark_cache_size>67108864</mark_cache_size>\n"
    "<uncompressed_cache_size>0</uncompressed_cache_size>\n"
    "<merge_tree>\n"
    "<number_of_free_entries_in_pool_to_execute_mutation>1"
    "</number_of_free_entries_in_pool_to_execute_mutation>\n"
    "<number_of_free_entries_in_pool_to_lower_max_size_of_merge>1"
    "</number_of_free_entries_in_pool_to_lower_max_size_of_merge>\n"
    "<number_of_free_entries_in_pool_to_execute_optimize_entire_partition>1"
    "</number_of_free_entries_in_pool_to_execute_optimize_entire_partition>\n"
    "</merge_tree>\n"
    "</clickhouse>\n";

#define USER_HEAD                                             \
    "<password></password><networks><ip>::/0</ip></networks>" \
    "<profile>default</profile><quota>default</quota>"

static const char users_xml[] =
    "<clickhouse>\n"
    "<profiles><default></default></profiles>\n"
    "<quotas><default></default></quotas>\n"
    "<roles><writer><grants><query>GRANT ALL ON *.*</query></grants></writer></roles>\n"
    "<users>\n"
    "<default>" USER_HEAD "<grants><query>GRANT SELECT ON q.events</query>"
    "<query>GRANT writer</query></grants></default>\n"
    "<viewer>" USER_HEAD "<grants><query>GRANT SELECT ON " EVENTS_DATABASE "." EVENTS_TABLE
    "</query></grants>"
    "<databases><" EVENTS_DATABASE "><" EVENTS_TABLE ">"
    "<filter>project = getSetting('log_comment')</filter>"
    "</" EVENTS_TABLE "></" EVENTS_DATABASE "></databases></viewer>\n"
    "</users>\n"
    "</clickhouse>\n";

static int path_of(char out[PATH_BYTES], const char *dir, const char *name, struct err *e)
{
    int n = snprintf(out, PATH_BYTES, "%s%s%s", dir, name[0] != '\0' ? "/" : "", name);

    return n > 0 && n < PATH_BYTES ? 0
                                   : err_set(e, ERR_USAGE,
                                             "the data directory's path is too "
                                             "long");
}

static int make_dir(const char *dir, const char *name, struct err *e)
{
    char path[PATH_BYTES];
    int r = path_of(path, dir, name, e);

    if (r != 0) {
        return r;
    }
    r = os_mkdir_exist_ok(path, 0700);
    return r != 0 ? err_os(e, r, "mkdir", path) : 0;
}

static int fill(int fd, struct slice text)
{
    int r = os_pwrite_all(fd, text.ptr, text.len, 0, NULL);

    return r != 0 ? r : os_fsync(fd);
}

static int write_file(const char *dir, const char *name, struct slice text, struct err *e)
{
    char path[PATH_BYTES];
    char fresh[PATH_BYTES + 8];
    int r = path_of(path, dir, name, e);
    int fd;
    int closed;

    if (r != 0) {
        return r;
    }
    (void)snprintf(fresh, sizeof fresh, "%s.new", path);
    fd = os_open(fresh, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) {
        return err_os(e, fd, "open", fresh);
    }
    r = fill(fd, text);
    closed = os_close(fd);
    r = r != 0 ? r : closed;
    if (r != 0) {
        return err_os(e, r, "write", fresh);
    }
    r = os_rename(fresh, path);
    return r != 0 ? err_os(e, r, "rename", path) : 0;
}

/* Files in there are left by the owner's own statements (sqlite() makes the file it is named). */
static int remove_one(void *ctx, const char *name)
{
    char path[PATH_BYTES + 300];

    (void)snprintf(path, sizeof path, "%s/%s", (const char *)ctx, name);
    return os_unlink(path);
}

static int enter_empty(const char *dir, struct err *e)
{
    char path[PATH_BYTES];
    int r = path_of(path, dir, "empty", e);

    if (r != 0) {
        return r;
    }
    r = os_list(path, remove_one, path);
    if (r == -EISDIR) {
        return err_set(e, ERR_REFUSED, "a directory lies in %s, which must be empty", path);
    }
    if (r == 0) {
        r = os_chdir(path);
    }
    return r != 0 ? err_os(e, r, "chdir", path) : 0;
}

int files_prepare(const char *dir, uint64_t memory_bytes, struct err *e)
{
    struct buf config = {0};
    int r = make_dir(dir, "", e);

    if (r == 0) {
        r = make_dir(dir, "data", e);
    }
    if (r == 0) {
        r = make_dir(dir, "empty", e);
    }
    buf_printf(&config, config_xml, (unsigned long long)memory_bytes);
    if (r == 0 && config.failed) {
        r = err_set(e, ERR_NO_MEMORY, "no memory for the configuration");
    }
    if (r == 0) {
        r = write_file(dir, "config.xml", buf_slice(&config), e);
    }
    if (r == 0) {
        r = write_file(dir, "users.xml", slice_cstr(users_xml), e);
    }
    if (r == 0) {
        r = os_sync_dir(dir);
        r = r != 0 ? err_os(e, r, "sync", dir) : 0;
    }
    buf_free(&config);
    return r != 0 ? r : enter_empty(dir, e);
}

/* DIR/data/store/PREFIX/TABLE: parts lie below. */
#define TABLE_DEPTH 3

struct walk {
    const char *path;
    unsigned depth;
};

static int sync_below(void *ctx, const char *name);

static int sync_tree(const char *path, unsigned depth)
{
    struct walk here = {path, depth};
    int r = depth < TABLE_DEPTH ? os_list(path, sync_below, &here) : 0;

    return r != 0 ? r : os_sync_dir(path);
}

static int sync_below(void *ctx, const char *name)
{
    const struct walk *up = ctx;
    char path[PATH_BYTES];
    struct os_stat st;
    int n = snprintf(path, sizeof path, "%s/%s", up->path, name);
    int r;

    if (n < 0 || (size_t)n >= sizeof path) {
        return -ENAMETOOLONG;
    }
    r = os_stat(path, &st);
    if (r == -ENOENT) {
        return 0; /* the engine's own threads come and go in there */
    }
    return r == 0 && S_ISDIR(st.mode) ? sync_tree(path, up->depth + 1) : r;
}

int files_sync_names(struct err *e)
{
    int r = sync_tree("../data", 0);

    r = r != 0 ? r : os_sync_dir("..");
    r = r != 0 ? r : os_sync_dir("../..");
    return r != 0 ? err_os(e, r, "sync the directories of", "the engine's data") : 0;
}
