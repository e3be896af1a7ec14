/* no_threads: pthread_create that fails when a test says so. Include once, in the test itself.
 * Under a sanitizer, which has a pthread_create of its own, nothing is replaced and NO_THREADS is
 * 0. */
#ifndef TESTS_LIB_NO_THREADS_H
#define TESTS_LIB_NO_THREADS_H

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NO_THREADS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define NO_THREADS 0
#endif
#endif
#ifndef NO_THREADS
#define NO_THREADS 1
#endif

/* Set while one thread alone starts others: after threads_left more there is none. */
static bool threads_fail;
static unsigned threads_left;

#if NO_THREADS
typedef int no_threads_fn(pthread_t *thread, const pthread_attr_t *a, void *(*fn)(void *),
                          void *ctx);

int pthread_create(pthread_t *thread, const pthread_attr_t *a, void *(*fn)(void *), void *ctx)
{
    static no_threads_fn *next;
    void *found;

    if (threads_fail && threads_left == 0) {
        return EAGAIN;
    }
    threads_left -= threads_left > 0 ? 1 : 0;
    if (next == NULL) {
        found = dlsym(RTLD_NEXT, "pthread_create");
        memcpy(&next, &found, sizeof next);
    }
    return next(thread, a, fn, ctx);
}
#endif

#endif
