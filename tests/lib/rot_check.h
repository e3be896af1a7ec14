/* rot_check: what a damaged directory is asked, and what it must answer. For
 * tests/crash/crash_rot.c, whose head comment says what is proven. */
#ifndef TESTS_LIB_ROT_CHECK_H
#define TESTS_LIB_ROT_CHECK_H

#include "journal/verify.h"
#include "tests/lib/rot_tree.h"

struct rot_flip {
    const struct rot_file *file;
    uint64_t at;
    unsigned bit;
};

struct rot_test {
    uint64_t seed, step, whole;
    bool verbose;
    char repro[300];
    uint64_t repro_at;
    unsigned repro_bit;
    /* results */
    uint64_t flips, wholes, opens, refused;
    unsigned violations;
    struct rot_flip now;
};

/* Records a violation at the flip of now. Always false. */
bool rot_no(struct rot_test *t, const char *what, const char *detail);
/* The shortcut: the batch again. true: it is refused. *foretold: what verify will say. */
bool rot_is_refused(const struct rot_file *f, const struct rot_batch *p,
                    enum verify_fault *foretold);
/* verify must name this file, and this place and fault. */
bool rot_verify_names(struct rot_test *t, const struct rot_batch *p, enum verify_fault fault);
/* It must open read-only with the first `proven` events, and take nothing. */
bool rot_opens_damaged(struct rot_test *t, const struct rot_tree *tree,
                       const struct rot_batch *from, uint64_t proven);
/* With the index in order: a closed generation is not read at the start, but each block of it is
 * checked when it is read. */
bool rot_opens_and_reads(struct rot_test *t, const struct rot_tree *tree);
/* Whatever of a sealed tree was turned: it is refused, or what is served and known is right, and
 * all that is missing is told as damage. */
void rot_sealed_is_right(struct rot_test *t, const struct rot_tree *tree);
void rot_remove_index(const struct rot_tree *tree);
/* Another disk like this one, in use; back with the second. */
struct model *rot_turn_to_copy(const struct rot_tree *tree);
void rot_turn_back(const struct rot_tree *tree, struct model *copy);

#endif
