#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The daemon of -DZD_STATIC=ON: needs no shared library, and is the same daemon to operators, the service manager and trainers.
source "$(dirname "$0")/lib.sh"
static=$build-static # beside it: other scripts search the build folder for libraries

configure() { # options
	cmake -S "$root" -B "$static" -G Ninja -DZD_TESTS=OFF -DZD_STATIC=ON -DZD_WERROR=ON "$@" && cmake --build "$static" --target zerod
}
needed() { readelf -d "$static/bin/zerod" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -v '^ld-linux' | sort | paste -sd' '; }
check "with ISA-L: configures and builds" configure -DZD_ISAL=ON || exit 1
equal "with ISA-L it needs that and the C library" "libc.so.6 libisal.so.2" "$(needed)"
check "configures and builds" configure -UZD_ISAL || exit 1
check "needs no shared library" test -z "$(needed)"
check "nor a loader" bash -c "! readelf -lW '$static/bin/zerod' | grep -q INTERP"
check "but is loaded at a random address" bash -c "readelf -hW '$static/bin/zerod' | grep -q 'Type: *DYN'"

bash "$root/tests/e2e/daemon.sh" "$static" >"$work/daemon.log" 2>&1
equal "what operators and the service manager meet" 0 "$?"
check "and nothing of it failed" bash -c "grep -q '^ok READY, WATCHDOG' '$work/daemon.log' && ! grep -q '^not ok' '$work/daemon.log'" ||
	sed 's/^/    /' "$work/daemon.log"

small=(--text "$root/README.md" --layers 2 --dim 32 --heads 2 --context 32 --batch 2 --steps 3)
bin=$static/bin daemon one
"$bin/zerod-lm" reference "${small[@]}" --result "$work/reference" >"$work/reference.log" 2>&1
check "trains" "$bin/zerod-lm" train "${small[@]}" --endpoints "127.0.0.1:$port_one" --result "$work/trained"
equal "the bits of the reference" "$(cat "$work/reference")" "$(cat "$work/trained")"
exit 0
