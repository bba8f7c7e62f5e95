/* SPDX-License-Identifier: Apache-2.0 */
/* The one function of a fuzz target, under the name that libFuzzer calls. */
#ifndef ZD_TESTS_FUZZ_H
#define ZD_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
