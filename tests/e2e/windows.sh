#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two jobs at once on a daemon whose receive windows are a sixth of what both would take: both go on, and end with the bits of a daemon that has
# plenty.  What does not fit beside them is refused with the numbers, and gets in when one has ended.
source "$(dirname "$0")/lib.sh"
# Three workers with two micro-batches need windows: eight each, if there are any.
model=(units=6 numel=30000 extent=8192 rounds=24 micro=2 world=3 timeout=60000)
daemon plenty
daemon tight --set lanes.count=2 --set memory.windows=8 --set memory.budget=48MiB
plenty=127.0.0.1:$port_plenty tight=127.0.0.1:$port_tight

# start JOB ENDPOINT: three ranks, rank 0 held after round 1; the pids of the others in $others
others=()
start() {
	steady "$1" 1 endpoints="$2" "${model[@]}"
	others+=("$started")
	steady "$1" 2 endpoints="$2" "${model[@]}"
	others+=("$started")
	steady_held "$1" 0 endpoints="$2" "${model[@]}" pause=round
}
# The jobs differ in their names only, so their bits are equal.
start alone "$plenty"
go_on alone.0
want=$(digest_in alone.0)
check "a daemon with plenty gives a digest" test -n "$want"

start a "$tight"
start b "$tight"
steady big 0 endpoints="$tight" units=6 numel=3000000
wait "$started"
equal "a third job, of more memory than is left, is refused" 1 "$?"
check "with what it needs, what is free and the budget" grep -Eq 'job big needs [0-9]+ bytes on this lane, free are [0-9]+ .* of a budget of [0-9]+' "$work/big.0.err"
steady c 0 endpoints="$tight" "${model[@]}"
wait "$started"
equal "one that fits, but finds no windows, is refused" 1 "$?"
check "with their numbers and the key" grep -q '3 workers need a receive window each and 2 more, free are 2 of 8: raise memory.windows' "$work/c.0.err"

go_on a.0 &
a=$!
go_on b.0 &
b=$!
wait -n -p ended "$a" "$b"
other=b
[[ $ended == "$b" ]] && other=a
rounds=$(grep -c '^round' "$work/$other.1")
# It had done one when both were let go; a starved one has done no other.
check "when one of them ends, the other has done more than the round before, $rounds so far" test "$rounds" -ge 3
wait "$a" "$b"
rcs=
for pid in "${others[@]}"; do
	wait "$pid"
	rcs+=$?
done
equal "ranks 1 and 2 of all jobs end well" 000000 "$rcs"
for job in a b; do
	equal "job $job has the bits of the daemon with plenty" "$want" "$(digest_in "$job.0")"
done

others=()
start c "$tight"
go_on c.0
equal "the job that found no windows gets in afterwards" "$want" "$(digest_in c.0)"
exit 0
