/* sandbox_internal: the filter of system calls, for sandbox.c and its tests. */
#ifndef OS_SANDBOX_INTERNAL_H
#define OS_SANDBOX_INTERNAL_H

#include <linux/filter.h>
#include <stdbool.h>

/* Sanitizers run a program that names the lines of what they report. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANDBOX_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANDBOX_SANITIZED 1
#endif
#endif

#define SANDBOX_CODE_MAX 256u

/* Writes the filter; its length, or 0 on a machine that it does not know. */
unsigned sandbox_filter(struct sock_filter code[SANDBOX_CODE_MAX], bool inet);

#endif
