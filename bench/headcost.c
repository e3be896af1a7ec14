/* headcost: what a signed head costs, and what checking one does. Prints microseconds. The reason
 * for signing on a worker: run this before signing on the loop. */
#include "bench/meter.h"
#include "door/history/signed_head.h"

#define REPEATS 2000

int main(void)
{
    struct ed25519_key *key = ed25519_new();
    struct journal_frontier f = {.events = 123456789};
    struct signed_head h;
    struct buf text = {0};
    struct err e = {0};
    uint8_t public[ED25519_PUBLIC_LEN];
    uint64_t start = now_ns();

    if (key == NULL) {
        die("no key");
    }
    memset(f.last_id.byte, 0x77, sizeof f.last_id.byte);
    f.last_id.byte[8] = 0x87;
    for (int i = 0; i < REPEATS; i++) {
        buf_clear(&text);
        if (signed_head_make(&f, 1800000000000u + (uint64_t)i, key, &text, &e) != 0) {
            die("%s", e.text);
        }
    }
    printf("sign   %8.1f us\n", (double)(now_ns() - start) / REPEATS / 1000);
    ed25519_public(key, public);
    start = now_ns();
    for (int i = 0; i < REPEATS; i++) {
        if (signed_head_read(buf_slice(&text), &h, &e) != 0 || !signed_head_check(&h, public)) {
            die("the head does not check");
        }
    }
    printf("check  %8.1f us\n", (double)(now_ns() - start) / REPEATS / 1000);
    buf_free(&text);
    ed25519_free(key);
    return 0;
}
