#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A worker killed at any moment costs nothing but time; a worker of an old launch cannot add anything.
source "$(dirname "$0")/lib.sh"
text=$work/text
for i in $(seq 400); do echo "line $i of a text that a small model can learn; $((i * i)) is $i squared."; done >"$text"
small=(--text "$text" --layers 2 --dim 32 --heads 2 --context 32 --batch 2 --steps 12 --seed 7)
daemon one --set lanes.count=2
daemon two
endpoints=127.0.0.1:$port_one,127.0.0.1:$port_two
want=$("$bin/zerod-lm" reference "${small[@]}" --world 2 --json | sed -n 's/.*"sha256":"\([0-9a-f]*\)".*/\1/p')

start() { # JOB EPOCH RANK: the worker's JSON lines in $work/JOB.EPOCH.RANK, its pid in $started
	"$bin/zerod-lm" train "${small[@]}" --endpoints "$endpoints" --job "$1" --epoch "$2" --rank "$3" --world 2 --lease 1 --json \
		>"$work/$1.$2.$3" 2>"$work/$1.$2.$3.err" &
	started=$!
	pids+=($!)
}
# start_watched JOB EPOCH RANK: the same, its lines on file descriptor $watch
start_watched() {
	exec {watch}< <(exec "$bin/zerod-lm" train "${small[@]}" --endpoints "$endpoints" --job "$1" --epoch "$2" --rank "$3" --world 2 --lease 1 \
		--json 2>"$work/$1.$2.$3.err")
	started=$!
	pids+=($!)
}
finish() { # JOB EPOCH: both ranks to the end; prints the digest
	start "$1" "$2" 1
	local other=$started
	start "$1" "$2" 0
	wait "$started" && wait "$other" && sed -n 's/.*"sha256":"\([0-9a-f]*\)".*/\1/p' "$work/$1.$2.0"
}

# Killed after round k, as seen by the victim itself: somewhere behind it. Where the victim was faster than the signal, there was no kill: once more.
for victim in 0 1; do
	for k in 1 4 9; do
		for attempt in 1 2 3 4 5; do
			job=kill-$victim-$k-$attempt
			start "$job" 1 $((1 - victim))
			survivor=$started
			start_watched "$job" 1 "$victim"
			for ((i = 0; i < k; i++)); do read -r line <&"$watch"; done
			kill -KILL "$started"
			wait "$started" || break
		done
		rc=0
		wait "$survivor" || rc=$?
		equal "rank $victim killed after round $k: the other ends with exit 75" 75 "$rc"
		check "it says which rank is missing" grep -Eq "rank $victim" "$work/$job.1.$((1 - victim)).err"
		equal "started again with epoch 2 it ends with the undisturbed bits" "$want" "$(finish "$job" 2)"
	done
done

# A rank that comes when its launch is over already is told so by its status, as those that were in time.
late() { exec "$bin/zerod-lm" train "${small[@]}" --endpoints "$endpoints" --job late --rank "$1" --world 3 --lease 1; }
for rank in 0 1; do
	late "$rank" >"$work/late.$rank" 2>&1 &
	pids+=($!)
	printf -v "late_$rank" %s $!
done
for _ in $(seq 1000); do "$bin/zeroctl" --endpoints "$endpoints" -o json job show late 2>/dev/null | grep -q '"joined": *2' && break; done
kill -KILL "$late_1"
rc=0
wait "$late_0" || rc=$?
equal "one of three killed before the last has come: who waits ends with exit 75" 75 "$rc"
expect "and so does the last" 75 '^zerod-lm: rank 2: .*rank 1 was last heard.*start a higher epoch' late 2

# Who looks at rank 0 sees for whom it waits, long before its timeout. Lines of progress end where the next begins.
exec {watch}< <(exec "$bin/zerod-lm" train "${small[@]}" --endpoints "$endpoints" --job alone --world 2 --rank 0 --lease 1 --progress always 2>&1)
alone=$!
pids+=("$alone")
line=
while [[ $line != *waiting* ]] && read -r -d $'\r' line <&"$watch"; do :; done
equal "a rank that is not here is named while the other waits" "step 1/12  waiting for rank 1: not here" "${line%"${line##*[! ]}"}"
kill -KILL "$alone"

# A worker that stands still while a new launch takes over.
start stale 1 1
other=$started
start_watched stale 1 0
stale=$started
read -r line <&"$watch"
kill -STOP "$stale"
wait "$other"
got=$(finish stale 2)
equal "a new launch takes over from a worker that stands still" "$want" "$got"
before=$("$bin/zeroctl" --endpoints "$endpoints" -o json job show stale)
kill -CONT "$stale"
rc=0
wait "$stale" || rc=$?
check "the old worker stops when it wakes (exit $rc)" test "$rc" -eq 1 -o "$rc" -eq 75
check "and says that a higher epoch exists" grep -Eqi 'epoch' "$work/stale.1.0.err"
after=$("$bin/zeroctl" --endpoints "$endpoints" -o json job show stale)
equal "nothing of the job changed" "$(sed -n 's/.*"step": *\([0-9]*\).*/\1/p' <<<"$before" | head -n 1)" "$(sed -n 's/.*"step": *\([0-9]*\).*/\1/p' <<<"$after" | head -n 1)"
exit 0
