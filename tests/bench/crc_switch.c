/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/crc_switch.h"

#include "client/options.h"

static int off;

void zd_crc_switch_off(void)
{
	off = 1;
}

/* The names that the linker gives to both. */
void __real_zd_options_config(const struct zd_options *options, struct zd_session_config *config);
void __wrap_zd_options_config(const struct zd_options *options, struct zd_session_config *config);

void __wrap_zd_options_config(const struct zd_options *options, struct zd_session_config *config)
{
	__real_zd_options_config(options, config);
	if (off)
		config->features &= ~ZD_FEATURE_PAYLOAD_CRC;
}
