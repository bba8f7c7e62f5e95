#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sixteen hostile peers against a daemon in which two workers train: nobody else notices, and the daemon does not grow.
source "$(dirname "$0")/lib.sh"
text=$work/text
for i in $(seq 400); do echo "line $i of a text that a small model can learn; $((i * i)) is $i squared."; done >"$text"
small=(--text "$text" --layers 2 --dim 64 --heads 2 --context 32 --batch 2 --steps 60 --seed 5)
daemon one --set lanes.count=2 --set log.level=error
endpoint=127.0.0.1:$port_one
digest_of() { sed -n 's/.*"sha256":"\([0-9a-f]*\)".*/\1/p' "$1"; }
rss_kib() { sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$pid_one/status"; }
train() { # JOB: two workers; the digest of rank 0 in $digest, their exit codes added up in $rcs
	local rank started=()
	for rank in 1 0; do
		"$bin/zerod-lm" train "${small[@]}" --endpoints "$endpoint" --job "$1" --rank "$rank" --world 2 --json \
			>"$work/$1.$rank.json" 2>"$work/$1.$rank.err" &
		started+=($!)
		pids+=($!)
	done
	rcs=0
	for pid in "${started[@]}"; do wait "$pid" || ((rcs += $?)); done
	((rcs == 0)) || cat "$work/$1".*.err >&2
	digest=$(digest_of "$work/$1.0.json")
}

want=$("$bin/zerod-lm" reference "${small[@]}" --world 2 --json | sed -n 's/.*"sha256":"\([0-9a-f]*\)".*/\1/p')
train calm
equal "the undisturbed run" "$want" "$digest"
"$bin/zeroctl" --endpoints "$endpoint" --yes job drop calm >/dev/null

# Once, so that what the daemon takes for connections the first time does not count as growth.
"$bin/hostile_peers" "$port_one" 2 >"$work/warm"
before=$(rss_kib)
exec {hostile}< <(exec "$bin/hostile_peers" "$port_one" 12)
pids+=($!)
peers=$!
read -r line <&"$hostile"
equal "the peers are at it" begun "$line"
train disturbed
equal "the training among them ends well" 0 "$rcs"
equal "with the undisturbed bits" "$want" "$digest"
if kill -0 "$peers" 2>/dev/null; then
	expect "the daemon answers among them" 0 'ready' "$bin/zeroctl" --endpoints "$endpoint" status
fi
read -r times <&"$hostile"
wait "$peers" 2>/dev/null
check "every one of them was bad at least once ($times)" test "$(wc -w <<<"$times")" -eq 16 -a "${times/#0 /}" = "$times" -a "${times/ 0/}" = "$times"
"$bin/zeroctl" --endpoints "$endpoint" --yes job drop disturbed >/dev/null
after=$(rss_kib)
check "the daemon grew by less than 4 MiB ($before to $after KiB)" test $((after - before)) -lt 4096
expect "the daemon is well" 0 'ready' "$bin/zeroctl" --endpoints "$endpoint" status
kill -TERM "$pid_one"
wait "$pid_one"
equal "and ends when it is told to" 0 "$?"
exit 0
