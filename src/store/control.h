/* control: projects, their keys, and where their artifacts go, in tallyman.sqlite and, for the
 * loop, in memory.
 *
 * The memory copy (struct control) belongs to the loop thread; it is loaded at open and changed
 * only after the commit of the job that changed the tables (control_*_committed are called by the
 * job's `done`). A key is found by the SHA-256 of its text, so lookups leak no timing about
 * tokens. Public keys (capture, segment) are also kept in clear, because `project show` prints
 * them; service keys only as their hash.
 *
 * Names: a project id is [a-z0-9][a-z0-9_-]{0,62}; a key's name (for segment keys: the source)
 * [A-Za-z0-9_.-]{1,64}; titles at most 200 bytes of UTF-8 without control characters; what may be
 * said of artifacts: artifact/settings.h. */
#ifndef STORE_CONTROL_H
#define STORE_CONTROL_H

#include "base/slice.h"
#include "store/store.h"

/* X(symbol, text): what a service key may do (spec/capture-delivery.md, decisions). */
#define SCOPES(X)                             \
    X(EVENTS_WRITE, "events:write")           \
    X(EVENTS_READ, "events:read")             \
    X(EVENTS_EDIT, "events:edit")             \
    X(QUERY_READ, "query:read")               \
    X(ARTIFACTS_READ, "artifacts:read")       \
    X(ARTIFACTS_RELEASE, "artifacts:release") \
    X(PROJECTS_ADMIN, "projects:admin")

enum scope_index {
#define X(sym, text) SCOPE_INDEX_##sym,
    SCOPES(X)
#undef X
        SCOPE_COUNT
};
enum scope {
#define X(sym, text) SCOPE_##sym = 1 << SCOPE_INDEX_##sym,
    SCOPES(X)
#undef X
};
const char *scope_name(enum scope_index i);
/* 0, or ERR_INVALID_KEY for an unknown name. */
int scope_parse(struct slice text, unsigned *scopes, struct err *e) MUST_CHECK;

enum key_kind { KEY_CAPTURE, KEY_SEGMENT, KEY_SERVICE };
const char *key_kind_name(enum key_kind k); /* "capture", "segment", "service" */

#define PROJECT_NAME_MAX  63
#define PROJECT_TITLE_MAX 200
#define KEY_NAME_MAX      64
#define KEY_TEXT_MAX      64 /* "tmc_" or "tms_" and 40 random characters, ASCII */

#define ARTIFACT_SINK_DIRECTORY "directory"
#define ARTIFACT_DIRECTORY_MAX  4000

/* Where and how the artifacts of a project are delivered; artifact/settings.h reads it. */
struct artifact_destination {
    struct slice sink;      /* empty: the project takes no artifacts */
    struct slice directory; /* empty: the sink has none */
    struct slice settings;  /* canonical JSON; empty: all at their defaults, as "{}" */
    bool checksum_optional; /* as settings say; filled by control */
};

struct project {
    int64_t id;
    char name[PROJECT_NAME_MAX + 1]; /* the id that people and the API use */
    char title[PROJECT_TITLE_MAX + 1];
    int64_t created_ms;
    struct artifact_destination artifacts;
};
struct key {
    int64_t id;
    int64_t project;
    enum key_kind kind;
    char name[KEY_NAME_MAX + 1];
    char text[KEY_TEXT_MAX + 1]; /* public kinds only; else "" */
    unsigned scopes;             /* service keys */
    int64_t created_ms;
    int64_t revoked_ms; /* 0: valid */
};

struct control;
/* Part of the open store; valid as long as it. */
struct control *store_control(struct store *s);

/* ---- loop thread, memory only ---- */
/* NULL: no such project (or key). Pointers are valid until the next turn. */
const struct project *control_project(const struct control *c, struct slice name);
const struct project *control_project_by_id(const struct control *c, int64_t id);
/* There is such a project and it has a destination for artifacts. */
bool control_takes_artifacts(const struct control *c, int64_t project);
/* An upload to it must declare its checksum: true unless the project says otherwise. */
bool control_requires_checksum(const struct control *c, int64_t project);
/* A valid (not revoked) key of any kind by its full text; *p (may be NULL) its project. */
const struct key *control_key(const struct control *c, struct slice text, const struct project **p);
/* All in order of creation: at(0), at(1), ... NULL at the end. */
const struct project *control_project_at(const struct control *c, size_t i);
const struct key *control_key_at(const struct control *c, int64_t project, size_t i);

/* ---- inside a job's run; the memory copy follows by control_committed ---- */
/* Makes a project with a capture token of its own. artifacts may be NULL; whether its directory is
 * there, and where its key file is, is the caller's to see. ERR_INVALID_PROJECT (e->text: which
 * rule), ERR_PROJECT_EXISTS, or a store error. */
int control_create_project(struct store *s, struct slice name, struct slice title,
                           const struct artifact_destination *artifacts, int64_t now_ms,
                           struct err *e) MUST_CHECK;
/* Changes how a project's artifacts are delivered as a JSON object says (settings_apply: members
 * that are not there stay); one that took none takes them from now on. What is packaged already
 * keeps its place. ERR_NOT_FOUND, ERR_INVALID_PROJECT (which rule), or a store error. */
int control_set_artifacts(struct store *s, int64_t project, struct slice changes,
                          struct err *e) MUST_CHECK;
/* Makes a key and gives its text, the only time that a service key's is seen. ERR_INVALID_KEY
 * (name, kind, scopes), ERR_NOT_FOUND (project). */
int control_create_key(struct store *s, int64_t project, enum key_kind kind, struct slice name,
                       unsigned scopes, int64_t now_ms, int64_t *id, char text[KEY_TEXT_MAX + 1],
                       struct err *e) MUST_CHECK;
/* ERR_NOT_FOUND: no such key of that project. Revoking twice is fine. The last valid capture key of
 * a project cannot be revoked (ERR_INVALID_KEY). */
int control_revoke_key(struct store *s, int64_t project, int64_t key, int64_t now_ms,
                       struct err *e) MUST_CHECK;
/* In the job's done, code 0: reads what changed into memory. ERR_NO_MEMORY, ERR_IO: the memory copy
 * is as before and is read again at the next tick. */
int control_committed(struct store *s, struct err *e) MUST_CHECK;

#endif
