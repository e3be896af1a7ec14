/* static: what SDKs ask for beside sending events: feature flags, remote configuration, settings.
 * The answers are honestly empty, and the same for every key. */
#ifndef DOOR_CAPTURE_STATIC_H
#define DOOR_CAPTURE_STATIC_H

#include "http/http.h"

/* on_request functions; ctx is the door's. */
http_fn static_flags;     /* POST /flags */
http_fn static_decide;    /* POST /decide */
http_fn static_config;    /* GET /array/KEY/config */
http_fn static_config_js; /* GET /array/KEY/config.js */
http_fn static_settings;  /* GET /v1/projects/KEY/settings */
http_fn static_none;      /* GET /static/...: parts of SDKs that are not kept here */

#endif
