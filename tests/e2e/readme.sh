#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every command of the README, taken from the README.  The two of the quickstart: the demo runs here with fewer steps and as it stands in
# demo.sh; tests/run is what runs this.
source "$(dirname "$0")/lib.sh"
cd "$root" || exit 1
mapfile -t commands < <(awk '/^## /{ section = $0 } /^    [a-z]/ && section == "## Run it" { sub(/^    /, ""); print }' README.md)
check "the README has commands to run" test "${#commands[@]}" -ge 4
for command in "${commands[@]}"; do
	# They say build/release without tests; the build folder under test is given.
	command=${command// -DZD_TESTS=OFF/}
	check "$command" bash -c "${command//build\/release/$build}"
done
for command in deploy/demo tests/run tests/bench/run; do
	check "$command is there and can be run" test -x "$command"
	check "the README names $command" grep -q "$command" README.md
done
exit 0
