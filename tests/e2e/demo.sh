#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The first thing a newcomer runs, as it stands in the README; then interrupted.
source "$(dirname "$0")/lib.sh"
cd "$root" || exit 1
export ZD_BUILD_DIR=$work/build
rc=0
deploy/demo >"$work/demo.log" 2>&1 || rc=$?
equal "deploy/demo ends with 0" 0 "$rc"
((rc == 0)) || tail -n 40 "$work/demo.log"
check "it ends with equal digests" grep -q 'equal, bit for bit' "$work/demo.log"
first=$(sed -n 's/^loss \([0-9.]*\) -> .*/\1/p' "$work/demo.log" | head -n 1)
last=$(sed -n 's/^loss [0-9.]* -> \([0-9.]*\).*/\1/p' "$work/demo.log" | head -n 1)
check "the model learns: loss $first -> $last" awk -v a="$first" -v b="$last" 'BEGIN { exit !(a > 5 && b < 2.5) }'
check "it shows a sample" grep -q '^sample:' "$work/demo.log"

# Ctrl-C in the middle of the training leaves nothing running.
# What a script starts in the background ignores SIGINT; a demo in a terminal does not.
setsid env --default-signal=INT deploy/demo --steps 100000 >"$work/interrupted.log" 2>&1 &
demo=$!
pids+=("$demo")
while kill -0 "$demo" 2>/dev/null; do
	port=$(sed -n 's/^zerod demo-0: 127.0.0.1:\([0-9]*\)$/\1/p' "$work/interrupted.log")
	[[ -n $port ]] && "$build/bin/zeroctl" --endpoints "127.0.0.1:$port" -o json job show zerod-lm 2>/dev/null | grep -q '"joined": *2' && break
done
check "two workers train" test -n "$port"
kill -INT -- "-$demo"
rc=0
wait "$demo" || rc=$?
equal "interrupted, the demo exits with 130" 130 "$rc"
check "nothing is left of its processes" bash -c "! ps -o pid= -s $demo | grep -q ."
exit 0
