#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# As many units as the protocol allows, in two daemons with several lanes: the bits of one lane with the scalar kernels, and a worker killed in between.
source "$(dirname "$0")/lib.sh"
daemon one --set lanes.count=3
daemon two --set lanes.count=2
ZEROD_KERNELS=scalar daemon alone
both=127.0.0.1:$port_one,127.0.0.1:$port_two
model=(units=1024 numel=1600 rounds=3 world=2)

# both_ranks JOB ENDPOINTS key=value...: the exit codes in $rcs
both_ranks() {
	local first
	rcs=
	steady "$1" 1 endpoints="$2" "${model[@]}" "${@:3}"
	first=$started
	steady "$1" 0 endpoints="$2" "${model[@]}" "${@:3}"
	wait "$started"
	rcs+=$?
	wait "$first"
	rcs+=$?
	[[ $rcs == 00 ]] || cat "$work/$1".*.err
}

both_ranks alone "127.0.0.1:$port_alone"
equal "one lane: both ranks end well" 00 "$rcs"
want=$(digest_in alone.0)
equal "both ranks fetch the same weights" "$want" "$(digest_in alone.1)"
both_ranks five "$both"
equal "five lanes of two daemons: both ranks end well" 00 "$rcs"
equal "1,024 units, five lanes, the bits of one" "$want" "$(digest_in five.0)"
both_ranks small "$both" extent=4096
equal "small extents: both ranks end well" 00 "$rcs"
equal "the same bits in extents of 4,096 elements" "$want" "$(digest_in small.0)"
equal "the daemon names them all" 1024 "$("$bin/zeroctl" --endpoints "$both" job show five | grep -cE '\bu[0-9]+\b')"

steady killed 1 endpoints="$both" "${model[@]}" lease=2000
survivor=$started
steady_held killed 0 endpoints="$both" "${model[@]}" lease=2000 pause=push
kill -KILL "$started"
wait "$survivor"
equal "rank 0 killed with half of round 2 pushed: the other ends" 75 "$?"
check "and says who is missing" grep -q 'rank 0' "$work/killed.1.err"
both_ranks killed "$both" epoch=2 lease=2000
equal "epoch 2 goes on" 00 "$rcs"
check "where epoch 1 was" bash -c "! grep -q 'round 1\$' '$work/killed.0'"
equal "to the same bits" "$want" "$(digest_in killed.0)"

steady toomany 0 endpoints="$both" units=1025 numel=100
wait "$started"
equal "one unit more is refused" 1 "$?"
check "with the numbers" grep -Eq '1025.*1024|1024.*1025' "$work/toomany.0.err"
exit 0
