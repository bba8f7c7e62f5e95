/* SPDX-License-Identifier: Apache-2.0 */
/* Error numbers of the protocol, from err.def.  Functions return 0 or a negative code; -zd_err travels as its positive number. */
#ifndef ZD_PROTO_ERR_H
#define ZD_PROTO_ERR_H

#define ZD_MUST_USE __attribute__((warn_unused_result))

enum zd_err {
	ZD_OK = 0,
#define X(name, number, class, text) ZD_ERR_##name = number,
#include "proto/err.def"
#undef X
};

enum zd_err_class { ZD_ERR_CLASS_NONE, ZD_ERR_CLASS_CLOSE, ZD_ERR_CLASS_REFUSE, ZD_ERR_CLASS_ABORT };

/* Static strings; "unknown error" and "UNKNOWN" for numbers that err.def does not have (a newer peer). */
const char *zd_err_text(int err);
const char *zd_err_name(int err);
enum zd_err_class zd_err_class(int err);

/* Returns early with the negative code of a decoding step.  Only for straight code that holds no resource. */
#define ZD_TRY(expr)                                                                                                                  \
	do {                                                                                                                          \
		int zd_try_rc_ = (expr);                                                                                              \
		if (zd_try_rc_ < 0)                                                                                                   \
			return zd_try_rc_;                                                                                            \
	} while (0)

#endif
