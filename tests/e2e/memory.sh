#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Memory of a daemon: at most 16 bytes per owned trainable parameter, plus 3 % and 24 MiB per lane.
source "$(dirname "$0")/lib.sh"
for lanes in 1 2; do
	name=lanes$lanes
	daemon "$name" --set lanes.count="$lanes" --set memory.budget=2GiB
	port=port_$name pid=pid_$name
	"$bin/zerod-lm" train --endpoints "127.0.0.1:${!port}" --text /usr/share/common-licenses/GPL-3 --layers 3 --dim 768 --heads 4 --context 32 --batch 1 \
		--steps 2 --json >"$work/$name.json" 2>"$work/$name.err" || cat "$work/$name.err"
	params=$(tail -n 1 "$work/$name.json" | sed -n 's/.*"params":\([0-9]*\).*/\1/p')
	peak=$(awk '/^VmHWM:/ { print $2 * 1024 }' "/proc/${!pid}/status")
	bound=$((16 * params * 103 / 100 + lanes * 24 * 1048576))
	check "$lanes lane(s), $params parameters: $peak of at most $bound bytes" test "$peak" -le "$bound"
	check "it is the state that takes it" test "$peak" -ge $((12 * params))
done
exit 0
