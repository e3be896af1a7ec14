/* destination: the rules of the far side for names and metadata.
 *
 * internet_archive: an identifier is [A-Za-z0-9][A-Za-z0-9._-]{4,99}; a remote name is made of
 * [A-Za-z0-9._-] and "/", without empty segments, "." or "..", and is none that the Archive keeps
 * for itself. It keeps IDENTIFIER_meta.xml and its like, names that begin with "_", and history/;
 * here the ending alone is refused, because what an uploader calls a file must not be able to
 * complete it.
 *
 * directory: both are one plain file name that does not begin with a dot: the adapter joins them
 * with "/" and nothing else, and ".tallyman-" is its own.
 *
 * Metadata goes out as one header a value; "_" of a key travels as "--", so that a key with "--",
 * "-_" or "_-" would arrive as another one.
 *
 * Power failure: nothing is stored here. Answers only. */
#include "store/artifact/destination.h"

#include "json/write.h"

static bool is_archive(const char *sink)
{
    return strcmp(sink, DESTINATION_ARCHIVE) == 0;
}

static bool alnum(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool plain(char c)
{
    return alnum(c) || c == '.' || c == '_' || c == '-';
}

/* The rule that one file name breaks, or NULL. */
static const char *plain_name(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (!plain(s.ptr[i])) {
            return "is made of A-Z, a-z, 0-9, '.', '_' and '-'";
        }
    }
    if (s.len == 0 || s.len > DESTINATION_NAME_MAX) {
        return "has 1 to 200 characters";
    }
    return s.ptr[0] == '.' ? "does not begin with '.'" : NULL;
}

static int say(struct err *e, const char *rule)
{
    return rule == NULL ? 0 : err_set(e, ERR_INVALID_PROJECT, "it %s", rule);
}

int destination_identifier(const char *sink, struct slice identifier, struct err *e)
{
    if (!is_archive(sink)) {
        return say(e, plain_name(identifier));
    }
    if (identifier.len < DESTINATION_IDENTIFIER_MIN ||
        identifier.len > DESTINATION_IDENTIFIER_MAX) {
        return err_set(e, ERR_INVALID_PROJECT, "it has %d to %d characters, this would have %zu",
                       DESTINATION_IDENTIFIER_MIN, DESTINATION_IDENTIFIER_MAX, identifier.len);
    }
    if (!alnum(identifier.ptr[0])) {
        return say(e, "begins with a letter or a digit");
    }
    for (size_t i = 0; i < identifier.len; i++) {
        if (!plain(identifier.ptr[i])) {
            return say(e, "is made of A-Z, a-z, 0-9, '.', '_' and '-'");
        }
    }
    return 0;
}

/* ---- remote names ---- */

static bool same_letter(char a, char b)
{
    return a == b || (a >= 'A' && a <= 'Z' && (char)(a + ('a' - 'A')) == b);
}

/* tail in lower case. */
static bool ends_with(struct slice s, const char *tail)
{
    size_t n = strlen(tail);

    if (s.len < n) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (!same_letter(s.ptr[s.len - n + i], tail[i])) {
            return false;
        }
    }
    return true;
}

bool destination_reserved(const char *sink, struct slice name)
{
    static const char *const tails[] = {"_meta.xml",        "_files.xml", "_meta.sqlite",
                                        "_archive.torrent", "_dc.xml",    "_reviews.xml",
                                        "_rules.conf"};
    const char *slash = name.len == 0 ? NULL : memchr(name.ptr, '/', name.len);
    struct slice first = slice_of(name.ptr, slash == NULL ? name.len : (size_t)(slash - name.ptr));

    if (!is_archive(sink)) {
        return false;
    }
    if ((name.len > 0 && name.ptr[0] == '_') ||
        (first.len == sizeof "history" - 1 && ends_with(first, "history"))) {
        return true;
    }
    for (size_t i = 0; slash == NULL && i < sizeof tails / sizeof *tails; i++) {
        if (ends_with(name, tails[i])) {
            return true;
        }
    }
    return false;
}

static const char *segment_rule(struct slice s)
{
    if (s.len == 0) {
        return "has no empty part between, before or after '/'";
    }
    for (size_t i = 0; i < s.len; i++) {
        if (!plain(s.ptr[i])) {
            return "is made of A-Z, a-z, 0-9, '.', '_', '-' and '/'";
        }
    }
    return slice_eq(s, SLICE(".")) || slice_eq(s, SLICE("..")) ? "has no part '.' or '..'" : NULL;
}

int destination_name(const char *sink, struct slice name, struct err *e)
{
    size_t begin = 0;

    if (!is_archive(sink)) {
        return say(e, plain_name(name));
    }
    for (size_t i = 0; i <= name.len; i++) {
        if (i == name.len || name.ptr[i] == '/') {
            const char *rule = segment_rule(slice_of(name.ptr + begin, i - begin));
            if (rule != NULL) {
                return say(e, rule);
            }
            begin = i + 1;
        }
    }
    if (name.len > DESTINATION_NAME_MAX) {
        return err_set(e, ERR_INVALID_PROJECT, "it has at most %d bytes, this would have %zu",
                       DESTINATION_NAME_MAX, name.len);
    }
    return destination_reserved(sink, name)
               ? say(e, "would be one that the Archive keeps for itself")
               : 0;
}

/* ---- metadata ---- */

int destination_metadata_key(struct slice key, struct err *e)
{
    if (key.len == 0 || key.len > DESTINATION_KEY_MAX) {
        return err_set(e, ERR_INVALID_PROJECT, "a key has 1 to %d characters", DESTINATION_KEY_MAX);
    }
    for (size_t i = 0; i < key.len; i++) {
        char c = key.ptr[i];
        bool letter = c >= 'a' && c <= 'z';
        if (!letter && (i == 0 || !plain(c) || (c >= 'A' && c <= 'Z'))) {
            return err_set(e, ERR_INVALID_PROJECT,
                           "a key is made of a-z, 0-9, '_', '-' and '.', and begins with a letter");
        }
        char before = i == 0 ? 'a' : key.ptr[i - 1];
        if ((c == '-' && (before == '-' || before == '_')) || (c == '_' && before == '-')) {
            return err_set(e, ERR_INVALID_PROJECT,
                           "a key with \"--\", \"-_\" or \"_-\" would arrive as another one");
        }
    }
    return slice_starts(key, SLICE("xml"))
               ? err_set(e, ERR_INVALID_PROJECT, "a key does not begin with \"xml\"")
               : 0;
}

int destination_metadata_value(struct slice value, struct err *e)
{
    size_t bad;

    if (value.len == 0) {
        return say(e, "must not be empty");
    }
    if (!utf8_valid(value, &bad)) {
        return say(e, "is UTF-8");
    }
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.ptr[i];
        bool c1 = c == 0xc2 && i + 1 < value.len && (unsigned char)value.ptr[i + 1] < 0xa0;
        bool none = c == 0xef && i + 2 < value.len && (unsigned char)value.ptr[i + 1] == 0xbf &&
                    (unsigned char)value.ptr[i + 2] >= 0xbe; /* U+FFFE, U+FFFF */
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f || c1 || none) {
            return say(e, "has no control characters but tab and line feed");
        }
    }
    return 0;
}

size_t destination_header_bytes(struct slice key, struct slice value)
{
    size_t n = sizeof "x-archive-meta00-: uri()\r\n" - 1;

    for (size_t i = 0; i < key.len; i++) {
        n += key.ptr[i] == '_' ? 2 : 1;
    }
    for (size_t i = 0; i < value.len; i++) {
        n += plain(value.ptr[i]) ? 1 : 3; /* %XX */
    }
    return n;
}
