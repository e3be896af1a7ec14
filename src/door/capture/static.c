/* static: flags, configuration and settings for SDKs that ask (spec/capture.md A7, client-wire.md 3
 * and 4).
 *
 * There are no feature flags, no recordings, no surveys here, and these answers say so, which keeps
 * the SDKs from asking for more. They hold nothing about projects and are given for every key,
 * valid or not: an SDK that gets an error here gives up, or asks again for ever, while with a wrong
 * key it learns of it from the 401 to its first events. The analytics path is not named, so that
 * SDKs stay with their own.
 *
 * The key and Host are echoed, so both must be plain characters; a key that is not is 404. */
#include "door/capture/static.h"

#include <strings.h>

#include "base/uuid.h"
#include "door/capture/identity.h"
#include "door/capture/internal.h"
#include "os/os.h"

/* What PostHog's configuration says, beside the key (spec/capture.md A7). autocapture_opt_out must
 * be there: without it autocapture stays off for new visitors. */
#define CONFIG_MEMBERS                                                                             \
    "\"supportedCompression\":[\"gzip\",\"gzip-js\"],\"hasFeatureFlags\":false,"                   \
    "\"sessionRecording\":false,\"surveys\":false,\"heatmaps\":false,\"captureDeadClicks\":false," \
    "\"capturePerformance\":false,\"autocaptureExceptions\":false,\"autocapture_opt_out\":false,"  \
    "\"isAuthenticated\":false,\"toolbarParams\":{},\"editorParams\":{},\"siteApps\":[],"          \
    "\"elementsChainAsString\":true,\"defaultIdentifiedOnly\":true"

#define FLAGS_V1 "\"featureFlags\":[]"
#define FLAGS_V3 "\"featureFlags\":{},\"featureFlagPayloads\":{}"
#define FLAGS_V4 "\"flags\":{}"

static void answer(struct http_request *req, const char *type, struct buf *out)
{
    http_add_header(req, "Cache-Control", SLICE("no-cache"));
    if (out->failed) {
        http_answer_error(req, ERR_OVERLOADED, "no memory for the answer", (struct slice){0});
    } else {
        http_answer(req, 200, type, buf_slice(out));
    }
    buf_free(out);
}

/* The value of a query parameter that needs no decoding: a word or a number. */
static struct slice parameter(const struct http_request *req, struct slice name)
{
    struct slice rest = http_query(req);
    while (rest.len > 0) {
        const char *end = memchr(rest.ptr, '&', rest.len);
        size_t len = end == NULL ? rest.len : (size_t)(end - rest.ptr);
        if (len > name.len && slice_starts(rest, name) && rest.ptr[name.len] == '=') {
            return slice_of(rest.ptr + name.len + 1, len - name.len - 1);
        }
        rest = slice_from(rest, end == NULL ? len : len + 1);
    }
    return (struct slice){0};
}

/* ---- flags ---- */

static void put_request_id(struct buf *out)
{
    struct uuid id;
    char text[UUID_TEXT_LEN];
    uint64_t now_ms = os_clock_real_ms();
    if (identity_new((int64_t)now_ms, &id) != 0) {
        out->failed = true;
        return;
    }
    uuid_text(text, &id);
    buf_put_cstr(out, ",\"errorsWhileComputingFlags\":false,\"requestId\":\"");
    buf_put(out, text, sizeof text);
    buf_put_cstr(out, "\",\"evaluatedAt\":");
    buf_put_u64(out, now_ms);
}

static void answer_flags(struct http_request *req, const char *flags, bool config)
{
    struct buf out = {0};
    buf_put_char(&out, '{');
    buf_put_cstr(&out, flags);
    put_request_id(&out);
    if (config) {
        buf_put_cstr(&out, "," CONFIG_MEMBERS);
    }
    buf_put_char(&out, '}');
    answer(req, "application/json", &out);
}

void static_flags(void *ctx, struct http_request *req)
{
    bool v2 = slice_eq(parameter(req, SLICE("v")), SLICE("2"));
    bool config = slice_eq(parameter(req, SLICE("config")), SLICE("true"));
    (void)ctx;
    answer_flags(req, v2 ? FLAGS_V4 : FLAGS_V3, config);
}

/* The older SDKs take their configuration from here too. */
void static_decide(void *ctx, struct http_request *req)
{
    struct slice v = parameter(req, SLICE("v"));
    const char *flags = FLAGS_V3;
    (void)ctx;
    if (v.len == 0 || slice_eq(v, SLICE("1"))) {
        flags = FLAGS_V1;
    } else if (slice_eq(v, SLICE("4"))) {
        flags = FLAGS_V4;
    }
    answer_flags(req, flags, true);
}

/* ---- remote configuration ---- */

/* The key in the path, or answers 404. */
static bool key_of_path(struct http_request *req, struct slice *key)
{
    *key = http_path_part(req, 0);
    if (capture_is_key_text(*key)) {
        return true;
    }
    http_answer_error(req, ERR_NOT_FOUND, "there is no such key", (struct slice){0});
    return false;
}

static void put_config(struct slice key, struct buf *out)
{
    buf_put_cstr(out, "{\"token\":\"");
    buf_put_slice(out, key);
    buf_put_cstr(out, "\"," CONFIG_MEMBERS "}");
}

void static_config(void *ctx, struct http_request *req)
{
    struct buf out = {0};
    struct slice key;
    (void)ctx;
    if (key_of_path(req, &key)) {
        put_config(key, &out);
        answer(req, "application/json", &out);
    }
}

void static_config_js(void *ctx, struct http_request *req)
{
    struct buf out = {0};
    struct slice key;
    (void)ctx;
    if (!key_of_path(req, &key)) {
        return;
    }
    buf_put_cstr(&out,
                 "(function(){window._POSTHOG_REMOTE_CONFIG=window._POSTHOG_REMOTE_CONFIG||{};"
                 "window._POSTHOG_REMOTE_CONFIG[\"");
    buf_put_slice(&out, key);
    buf_put_cstr(&out, "\"]={\"config\":");
    put_config(key, &out);
    buf_put_cstr(&out, ",\"siteApps\":[]}})();\n");
    answer(req, "application/javascript; charset=utf-8", &out);
}

/* posthog-js looks for parts of itself that it was told are not needed, and does without. A page
 * may read that, else its console fills with errors about CORS. */
void static_none(void *ctx, struct http_request *req)
{
    (void)ctx;
    http_answer_error(req, ERR_NOT_FOUND, "nothing is kept here; SDKs do without",
                      (struct slice){0});
}

/* ---- Segment ---- */

/* A host name or address, perhaps with a port; nothing that means something in JSON. */
static bool is_plain_host(struct slice host)
{
    for (size_t i = 0; i < host.len; i++) {
        char c = host.ptr[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                     c == '-' || c == '_' || c == '.' || c == ':' || c == '[' || c == ']';
        if (!plain) {
            return false;
        }
    }
    return host.len > 0 && host.len <= 255;
}

static bool is_loopback(struct slice host)
{
    return slice_starts(host, SLICE("127.")) || slice_starts(host, SLICE("localhost")) ||
           slice_starts(host, SLICE("[::1]"));
}

/* How this page can reach us: there is no TLS here, so https is the business of a proxy in front,
 * which says so, or of which the page's own origin tells. */
static const char *protocol_of(const struct http_request *req, struct slice host)
{
    struct slice v;
    if (http_header(req, "x-forwarded-proto", &v, NULL)) {
        return v.len >= 5 && strncasecmp(v.ptr, "https", 5) == 0 ? "https" : "http";
    }
    bool https_page = http_header(req, "origin", &v, NULL) && slice_starts(v, SLICE("https://"));
    return https_page && !is_loopback(host) ? "https" : "http";
}

void static_settings(void *ctx, struct http_request *req)
{
    struct buf out = {0};
    struct slice key;
    struct slice host;
    (void)ctx;
    if (!key_of_path(req, &key)) {
        return;
    }
    buf_put_cstr(&out, "{\"integrations\":{\"Segment.io\":{\"apiKey\":\"");
    buf_put_slice(&out, key);
    buf_put_char(&out, '"');
    if (http_header(req, "host", &host, NULL) && is_plain_host(host)) {
        buf_put_cstr(&out, ",\"apiHost\":\"");
        buf_put_slice(&out, host);
        buf_put_cstr(&out, "/v1\",\"protocol\":\"");
        buf_put_cstr(&out, protocol_of(req, host));
        buf_put_char(&out, '"');
    }
    buf_put_cstr(&out,
                 ",\"unbundledIntegrations\":[],\"addBundledMetadata\":true}},"
                 "\"plan\":{\"track\":{\"__default\":{\"enabled\":true,\"integrations\":{}}},"
                 "\"identify\":{\"__default\":{\"enabled\":true}},"
                 "\"group\":{\"__default\":{\"enabled\":true}}},"
                 "\"edgeFunction\":{},\"analyticsNextEnabled\":true,\"middlewareSettings\":{},"
                 "\"enabledMiddleware\":{},\"metrics\":{\"sampleRate\":0},"
                 "\"legacyVideoPluginsEnabled\":false,\"remotePlugins\":[]}");
    answer(req, "application/json", &out);
}
