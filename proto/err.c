/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/err.h"

/* Both signs are taken: callers hold either what a function returned or what a frame said. */
static unsigned number(int err)
{
	return err < 0 ? 0u - (unsigned)err : (unsigned)err;
}

const char *zd_err_text(int err)
{
	switch (number(err)) {
	case ZD_OK:
		return "no error";
#define X(name, no, class, text)                                                                                                      \
	case no:                                                                                                                      \
		return text;
#include "proto/err.def"
#undef X
	default:
		return "unknown error";
	}
}

const char *zd_err_name(int err)
{
	switch (number(err)) {
	case ZD_OK:
		return "OK";
#define X(name, no, class, text)                                                                                                      \
	case no:                                                                                                                      \
		return #name;
#include "proto/err.def"
#undef X
	default:
		return "UNKNOWN";
	}
}

enum zd_err_class zd_err_class(int err)
{
	switch (number(err)) {
#define X(name, no, class, text)                                                                                                      \
	case no:                                                                                                                      \
		return ZD_ERR_CLASS_##class;
#include "proto/err.def"
#undef X
	default:
		return ZD_ERR_CLASS_NONE;
	}
}
