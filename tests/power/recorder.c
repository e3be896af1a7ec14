/* recorder: a block device that writes down what happens to it, as a plugin of nbdkit.
 *
 *   nbdkit recorder.so base=IMAGE log=FILE counter=FILE [deaf=FILE]
 *
 * base is the image the device begins with; it is never changed, what is written lives in memory.
 * Requests are served one at a time, so that the log is their order. A record is a header of
 * struct record and, for a write, the bytes:
 *
 *   'W' write: offset, length, bytes      'Z' zeros (also a trim): offset, length      'F' flush
 *
 * A flush promises everything before it in the log. So every content that a real device may have
 * after a power cut at any place of the log is: all that stands before the last flush in front of
 * that place, and any subset of the 512-byte sectors between the two (images.py makes them).
 *
 * counter is a file of 8 bytes, the number of flushes that were finished, in host order. It rises
 * before the flush is answered: whoever reads N there after the answer to a request knows that what
 * the answer promised must be in every image that holds flush N. A number read late is only milder.
 *
 * deaf: while that file exists, each flush is answered EIO, writes are not: the disk that takes
 * everything into its cache and then says that it cannot keep it. Failing writes are the business
 * of nbdkit's error filter. Without log nothing is recorded.
 *
 * Anything that goes wrong with the log answers EIO, and the run is void: images.py refuses a log
 * that does not end where the counter says. */
#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_SERIALIZE_ALL_REQUESTS

struct record {
    uint32_t kind;
    uint32_t length;
    uint64_t offset;
};

static_assert(sizeof(struct record) == 16, "images.py reads it");

static char *base_path;
static char *log_path;
static char *counter_path;
static char *deaf_path;

static uint8_t *disk;
static int64_t disk_size;
static FILE *log_file;
static volatile uint64_t *flushes;

static int config(const char *key, const char *value)
{
    struct {
        const char *key;
        char **path;
    } const known[] = {
        {"base", &base_path}, {"log", &log_path}, {"counter", &counter_path}, {"deaf", &deaf_path}};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(key, known[i].key) == 0) {
            *known[i].path = nbdkit_absolute_path(value);
            return *known[i].path != NULL ? 0 : -1;
        }
    }
    nbdkit_error("unknown parameter: %s", key);
    return -1;
}

static int config_complete(void)
{
    if (base_path == NULL || counter_path == NULL) {
        nbdkit_error("base and counter are needed");
        return -1;
    }
    return 0;
}

static int map_base(void)
{
    struct stat st;
    int fd = open(base_path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) < 0) {
        nbdkit_error("%s: %m", base_path);
        return -1;
    }
    disk_size = st.st_size;
    void *at = mmap(NULL, (size_t)disk_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    (void)close(fd);
    if (at == MAP_FAILED) {
        nbdkit_error("map %s: %m", base_path);
        return -1;
    }
    disk = at;
    return 0;
}

static int map_counter(void)
{
    int fd = open(counter_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0 || ftruncate(fd, sizeof(*flushes)) < 0) {
        nbdkit_error("%s: %m", counter_path);
        return -1;
    }
    void *at = mmap(NULL, sizeof(*flushes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (at == MAP_FAILED) {
        nbdkit_error("map %s: %m", counter_path);
        return -1;
    }
    flushes = at;
    return 0;
}

static int get_ready(void)
{
    if (map_base() < 0 || map_counter() < 0) {
        return -1;
    }
    if (log_path != NULL) {
        log_file = fopen(log_path, "wbe");
        if (log_file == NULL) {
            nbdkit_error("%s: %m", log_path);
            return -1;
        }
    }
    return 0;
}

static void unload(void)
{
    if (log_file != NULL && fclose(log_file) != 0) {
        nbdkit_error("%s: %m", log_path);
    }
    free(base_path);
    free(log_path);
    free(counter_path);
    free(deaf_path);
}

static void *open_disk(int readonly)
{
    (void)readonly;
    return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t get_size(void *handle)
{
    (void)handle;
    return disk_size;
}

static int yes(void *handle)
{
    (void)handle;
    return 1;
}

static int emulate_fua(void *handle)
{
    (void)handle;
    return NBDKIT_FUA_EMULATE;
}

static int note(uint32_t kind, const void *bytes, uint32_t length, uint64_t offset)
{
    const struct record r = {kind, length, offset};

    if (log_file == NULL) {
        return 0;
    }
    bool ok = fwrite(&r, sizeof(r), 1, log_file) == 1;
    if (ok && bytes != NULL) {
        ok = fwrite(bytes, length, 1, log_file) == 1;
    }
    if (ok && kind == 'F') {
        ok = fflush(log_file) == 0;
    }
    if (!ok) {
        nbdkit_error("%s: %m", log_path);
        nbdkit_set_error(EIO);
        return -1;
    }
    return 0;
}

static int read_disk(void *handle, void *buf, uint32_t count, uint64_t offset, uint32_t flags)
{
    (void)handle;
    (void)flags;
    memcpy(buf, disk + offset, count);
    return 0;
}

static int write_disk(void *handle, const void *buf, uint32_t count, uint64_t offset,
                      uint32_t flags)
{
    (void)handle;
    (void)flags;
    memcpy(disk + offset, buf, count);
    return note('W', buf, count, offset);
}

static int zero_disk(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
    (void)handle;
    (void)flags;
    memset(disk + offset, 0, count);
    return note('Z', NULL, count, offset);
}

static int flush_disk(void *handle, uint32_t flags)
{
    (void)handle;
    (void)flags;
    if (deaf_path != NULL && access(deaf_path, F_OK) == 0) {
        nbdkit_set_error(EIO);
        return -1;
    }
    if (note('F', NULL, 0, 0) < 0) {
        return -1;
    }
    *flushes = *flushes + 1;
    return 0;
}

static struct nbdkit_plugin plugin = {
    .name = "recorder",
    .longname = "block device that records its requests",
    .config = config,
    .config_complete = config_complete,
    .config_help = "base=IMAGE log=FILE counter=FILE [deaf=FILE]",
    .get_ready = get_ready,
    .unload = unload,
    .open = open_disk,
    .get_size = get_size,
    .can_multi_conn = yes,
    .can_write = yes,
    .can_flush = yes,
    .can_trim = yes,
    .can_zero = yes,
    .can_fua = emulate_fua,
    .pread = read_disk,
    .pwrite = write_disk,
    .zero = zero_disk,
    .trim = zero_disk,
    .flush = flush_disk,
};

/* nbdkit's macro defines the entry point without declaring it. */
struct nbdkit_plugin *plugin_init(void);
NBDKIT_REGISTER_PLUGIN(plugin)
