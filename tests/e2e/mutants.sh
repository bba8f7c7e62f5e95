#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Faults that are put into the agreement must be found by the simulated world, its scenarios or the unit tests.
source "$(dirname "$0")/lib.sh"
bash "$root/tests/sim/mutants.sh" "$build"
exit 0
