/* ensure: assertions that stay on in release builds.
 *
 * A failed ensure() is a bug in Tallyman (STYLE 9): it names the place and aborts, so that a core
 * is left and nothing more is acknowledged. It is never used on input or on what a disk returned.
 */
#ifndef BASE_ENSURE_H
#define BASE_ENSURE_H

_Noreturn void ensure_failed(const char *what, const char *file, int line);

#define ensure(cond) ((cond) ? (void)0 : ensure_failed(#cond, __FILE__, __LINE__))

#ifndef static_assert
#define static_assert _Static_assert
#endif

#endif
