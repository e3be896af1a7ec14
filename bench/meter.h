/* meter: clock, latency histogram and failure helper shared by the benchmark programs.
 *
 * The programs in bench/ are one file each, so what they share is static inline in three headers:
 * this one, payload.h and driver.h. A histogram bucket is 1/64 of a power of two of nanoseconds
 * wide: the error of a quantile is below 1.6 %, its memory is fixed, adding to it costs a few
 * nanoseconds. */
#ifndef BENCH_METER_H
#define BENCH_METER_H

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/ensure.h"

#define NS_PER_S 1000000000ull

#define METER_SUB_BITS 6
#define METER_SUB      (1u << METER_SUB_BITS)
/* Up to 2^40 ns, about 18 minutes; anything longer lands in the last bucket. */
#define METER_BUCKETS ((40u - METER_SUB_BITS + 1u) * METER_SUB)

struct meter {
    uint64_t bucket[METER_BUCKETS];
    uint64_t count;
    uint64_t latency_ns_max;
};

/* A benchmark that cannot run says why and ends with 1; it never prints a figure. */
__attribute__((format(printf, 1, 2), noreturn)) static inline void die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("bench: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(1);
}

__attribute__((noreturn)) static inline void die_errno(const char *what)
{
    die("%s: %s", what, strerror(errno));
}

static inline uint64_t now_ns(void)
{
    struct timespec ts;
    if (clock_gettime(CLOCK_MONOTONIC, &ts) != 0) {
        die_errno("clock_gettime");
    }
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* CPU seconds of this process so far, user and system. */
static inline double cpu_s(void)
{
    struct rusage ru;
    if (getrusage(RUSAGE_SELF, &ru) != 0) {
        die_errno("getrusage");
    }
    return (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
           (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6;
}

static inline void *must_alloc(size_t n)
{
    void *p = calloc(1, n);
    if (p == NULL) {
        die("no memory for %zu bytes", n);
    }
    return p;
}

static inline unsigned meter_index(uint64_t ns)
{
    if (ns < METER_SUB) {
        return (unsigned)ns;
    }
    unsigned top = 63u - (unsigned)__builtin_clzll(ns);
    unsigned shift = top - METER_SUB_BITS;
    unsigned index = (shift + 1u) * METER_SUB + (unsigned)((ns >> shift) & (METER_SUB - 1u));
    return index < METER_BUCKETS ? index : METER_BUCKETS - 1u;
}

/* The middle of a bucket, in nanoseconds. */
static inline uint64_t meter_value(unsigned index)
{
    ensure(index < METER_BUCKETS);
    if (index < METER_SUB) {
        return index;
    }
    unsigned shift = index / METER_SUB - 1u;
    uint64_t low = (uint64_t)(METER_SUB + index % METER_SUB) << shift;
    return low + ((1ull << shift) >> 1);
}

static inline void meter_add(struct meter *m, uint64_t ns)
{
    m->bucket[meter_index(ns)]++;
    m->count++;
    if (ns > m->latency_ns_max) {
        m->latency_ns_max = ns;
    }
}

/* Quantile in microseconds; q in 0..1. 0 when nothing was measured. */
static inline double meter_quantile_us(const struct meter *m, double q)
{
    ensure(q >= 0.0 && q <= 1.0);
    uint64_t want = (uint64_t)(q * (double)m->count);
    uint64_t seen = 0;
    for (unsigned i = 0; i < METER_BUCKETS; i++) {
        seen += m->bucket[i];
        if (seen > want) {
            return (double)meter_value(i) / 1e3;
        }
    }
    return (double)m->latency_ns_max / 1e3;
}

/* What every load program prints, one line of key=value for scripts and people. */
struct result {
    uint64_t acks;             /* positive answers inside the measured time */
    uint64_t acks_total;       /* with those of the warm-up and of the last turn */
    uint64_t events_per_batch; /* events each of them acknowledges */
    uint64_t errors; /* answers that were not positive, broken answers, lost connections */
    uint64_t unsent; /* open loop: requests that were due and had no connection */
    double measured_s;
    double cpu_used_s;
};

static inline void result_print(const struct result *r, const struct meter *m)
{
    double events = (double)(r->acks * r->events_per_batch);
    printf("events_per_s=%.0f acks=%" PRIu64 " acks_total=%" PRIu64 " errors=%" PRIu64
           " unsent=%" PRIu64
           " seconds=%.3f p50_us=%.1f p99_us=%.1f p999_us=%.1f max_us=%.1f load_cpu_s=%.3f\n",
           events / r->measured_s, r->acks, r->acks_total, r->errors, r->unsent, r->measured_s,
           meter_quantile_us(m, 0.5), meter_quantile_us(m, 0.99), meter_quantile_us(m, 0.999),
           (double)m->latency_ns_max / 1e3, r->cpu_used_s);
}

#endif
