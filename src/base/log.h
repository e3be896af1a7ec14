/* log: one line an event, to standard error, safe from any thread.
 *
 * Form: `2026-11-30T09:05:51.123Z level module: text`. Secrets and request bodies are never logged.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* Lines below the level are dropped; LOG_INFO at start. */
void log_set_level(enum log_level level);
void log_line(enum log_level level, const char *module, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
