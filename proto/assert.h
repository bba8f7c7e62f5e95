/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ZD_ASSERT: our own bug, never a peer's fault or the world's.  Always on.  The process prints what was violated and the object's
 * description, then aborts.  The handler is a pointer so that the pure parts need no stdio and a test can catch it.
 */
#ifndef ZD_PROTO_ASSERT_H
#define ZD_PROTO_ASSERT_H

typedef void zd_assert_handler(const char *file, int line, const char *what);

/* The default prints nothing and traps; programs install one that logs and aborts.  The handler must not return. */
extern zd_assert_handler *zd_assert_failed;

#define ZD_ASSERT(cond)                                                                                                               \
	do {                                                                                                                          \
		if (__builtin_expect(!(cond), 0)) {                                                                                   \
			zd_assert_failed(__FILE__, __LINE__, #cond);                                                                  \
			__builtin_trap();                                                                                             \
		}                                                                                                                     \
	} while (0)

#endif
