/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ZD_TEST_CLIENT_MUST_H
#define ZD_TEST_CLIENT_MUST_H

/* A call of libzerod on the variable `client` that has to end well. */
#define MUST(call)                                                                                                                    \
	do {                                                                                                                          \
		int rc_ = (call);                                                                                                     \
		if (rc_ != ZEROD_OK)                                                                                                  \
			fail_msg("%s: status %d: %s", #call, rc_, zerod_detail(client));                                              \
	} while (0)

#endif
