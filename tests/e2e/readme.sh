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
# The blocks of shell lines: a daemon on a free port stands for the one on the default port, a folder for the root of the system.
daemon readme
export ZEROCTL_ENDPOINTS=127.0.0.1:$port_readme DESTDIR=$work/system
mapfile -t commands < <(awk '/^## /{ section = $0 } /^```/ { open = $0 == "```sh"; next } open && section == "## Run it" { sub(/ +#.*/, ""); print }' README.md)
commands+=("cmake --install build/release" "cmake --install build/release --component runtime")
check "the README has lines to type" test "${#commands[@]}" -ge 6
for command in "${commands[@]}"; do
	run=${command//build\/release/$build}
	run=${run/zerod-lm train/zerod-lm train --endpoints $ZEROCTL_ENDPOINTS}
	case $command in
	*systemctl*) printf 'skip %s: needs systemd as the first process; units.sh verifies what it starts\n' "$command" ;;
	zerod\ *) check "$command" bash -c "mkdir -p '$work/system/etc/zerod' && '$bin/'${run/>\/etc/>$work\/system\/etc}" ;;
	*) check "$command" bash -c "$run" ;;
	esac
done
check "what was printed as the sample is a configuration" "$bin/zerod" --config "$work/system/etc/zerod/main.conf" --check-config
for command in "cmake --install build/release" "cmake --install build/release --component runtime"; do
	check "the README says: $command" grep -qF "$command" README.md
done
for command in deploy/demo tests/run tests/bench/run; do
	check "$command is there and can be run" test -x "$command"
	check "the README names $command" grep -q "$command" README.md
done
exit 0
