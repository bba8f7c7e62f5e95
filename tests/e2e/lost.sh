#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A daemon that goes away: the workers end within their time limit and say what is the matter, wherever in a step it happens.
source "$(dirname "$0")/lib.sh"
text=$work/text
for i in $(seq 400); do echo "line $i of a text that a small model can learn; $((i * i)) is $i squared."; done >"$text"
small=(--text "$text" --layers 2 --dim 64 --heads 2 --context 32 --batch 2 --seed 7)
# start PORT JOB options: two workers; rank 0's lines on file descriptor $watch, their pids in $p0 and $p1.  Who hangs is killed, and found out.
start() {
	local port=$1 job=$2
	shift 2
	local worker=(timeout -s KILL 40 "$bin/zerod-lm" train "${small[@]}" --endpoints "127.0.0.1:$port" --job "$job" --world 2 --json "$@")
	"${worker[@]}" --rank 1 >"$work/$job.1" 2>"$work/$job.1.err" &
	p1=$!
	exec {watch}< <(exec "${worker[@]}" --rank 0 2>"$work/$job.0.err")
	p0=$!
	pids+=("$p0" "$p1")
}
ended() { # NAME STATUS PATTERN JOB: both of them
	local rc rank pid
	for rank in 0 1; do
		pid=p$rank rc=0
		wait "${!pid}" || rc=$?
		equal "$1: rank $rank ends" "$2" "$rc"
		check "$1: rank $rank says why" grep -Eq "$3" "$work/$4.$rank.err" || cat "$work/$4.$rank.err"
	done
}

for k in 1 2 3 5 8; do
	for stage in 1 3; do
		daemon "k${k}s$stage"
		port=port_k${k}s$stage pid=pid_k${k}s$stage
		start "${!port}" "gone-$k-$stage" --stage "$stage" --steps 100000 --timeout 2
		for ((i = 0; i < k; i++)); do read -r line <&"$watch"; done
		kill -KILL "${!pid}"
		ended "killed after round $k, stage $stage" 75 'timed out.*connection (refused|lost|reset)' "gone-$k-$stage"
	done
done

daemon kept
start "$port_kept" kept --stage 0 --steps 100000 --timeout 20 --lease 1
read -r line <&"$watch"
kill -TERM "$p1" # timeout hands it on
rc=0 && wait "$p0" || rc=$?
equal "a rank dies in stage 0: no later launch can go on, and the other rank ends" 1 "$rc"
check "it says why" grep -q "rank 1 was last heard.*in stage 0 the weights end with the workers.*zeroctl --yes job drop kept" "$work/kept.0.err"

daemon alone
for rank in 0 1; do
	job=alone$rank
	expect "rank $((1 - rank)) is not started: rank $rank names it" 75 "rank $((1 - rank)) is not here \(never joined" \
		timeout -s KILL 40 "$bin/zerod-lm" train "${small[@]}" --endpoints "127.0.0.1:$port_alone" --job "$job" --world 2 --rank "$rank" --steps 2 \
		--lease 1 --timeout 4
	expect "and so does zeroctl" 0 "^ *$((1 - rank)) +0 +0 +-" "$bin/zeroctl" --endpoints "127.0.0.1:$port_alone" job show "$job"
done

daemon back
start "$port_back" back --steps 100000 --timeout 20
read -r line <&"$watch"
kill -KILL "$pid_back"
wait "$pid_back" 2>/dev/null
"$bin/zerod" --set listen.port="$port_back" --set lanes.count=1 --set memory.budget=256MiB 2>"$work/back.log" &
pids+=($!)
ended "killed and started again, empty" 1 "lost the job's state.*no launch can go on.*zeroctl --yes job drop back" back
anew=("$bin/zerod-lm" train "${small[@]}" --endpoints "127.0.0.1:$port_back" --job back --timeout 20)
expect "a later launch says that it begins anew" 0 'epoch 2 begins with the initial weights' timeout -s KILL 40 "${anew[@]}" --epoch 2 --steps 1
check "one that goes on does not" bash -c 'out=$("$@" 2>&1) && ! grep "initial weights" <<<"$out"' - timeout -s KILL 40 "${anew[@]}" --epoch 3 --steps 2
check "the way out is one" "$bin/zeroctl" --endpoints "127.0.0.1:$port_back" --yes job drop back
check "nor does a first launch" bash -c 'out=$("$@" 2>&1) && ! grep "initial weights" <<<"$out"' - timeout -s KILL 40 "${anew[@]}" --steps 1

daemon drained
start "$port_drained" drained --steps 100000 --timeout 2
read -r line <&"$watch"
kill -TERM "$pid_drained"
wait "$pid_drained"
equal "SIGTERM in the middle of training ends the daemon with 0" 0 "$?"
ended "SIGTERM" 75 'timed out.*(refused|lost|reset|shutting down)' drained
exit 0
