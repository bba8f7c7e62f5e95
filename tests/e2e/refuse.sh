#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Bad input: each a clear message that says what was expected, what was found and what to do; the daemon and the others go on.
source "$(dirname "$0")/lib.sh"
text=/usr/share/common-licenses/GPL-3
small=(--layers 1 --dim 32 --heads 2 --context 32 --batch 2 --steps 2)
daemon one
endpoint=127.0.0.1:$port_one
lm() { "$bin/zerod-lm" "$@" --endpoints "$endpoint"; }
ctl() { "$bin/zeroctl" --endpoints "$endpoint" "$@"; }

: >"$work/empty"
echo short >"$work/short"
expect "a text that is missing" 1 "$work/none" lm train --text "$work/none" "${small[@]}"
expect "a text that is empty" 1 'empty' lm train --text "$work/empty" "${small[@]}"
expect "a text that is shorter than the context" 1 '33|context' lm train --text "$work/short" "${small[@]}"
expect "a text that is a folder" 1 'director|folder|regular' lm train --text "$work" "${small[@]}"
expect "no text" 2 '--text' lm train "${small[@]}"
expect "an unknown option" 2 'unrecognized option.*--nonsense|nonsense' lm train --nonsense
expect "an unknown command" 2 "no command 'tarin'" lm tarin --text "$text"
expect "a stage that does not exist" 2 'stage.*0 to 3.*4' lm train --text "$text" --stage 4
expect "a rank beyond the world" 2 'rank' lm train --text "$text" --rank 2 --world 2
expect "a host that does not answer" 1 'refused|cannot connect|answer' "$bin/zerod-lm" train --endpoints 127.0.0.1:1 --text "$text" "${small[@]}"
expect "an endpoint without port" 2 'host:port' "$bin/zerod-lm" train --endpoints localhost --text "$text" "${small[@]}"
expect "a job name that cannot be" 2 'job' lm train --job 'a b' --text "$text" "${small[@]}"

check "a job is there" lm train --job first --text "$text" "${small[@]}"
expect "a second job of that name with another specification names the first field that differs" 1 'units|numel|unit' \
	lm train --job first --text "$text" "${small[@]}" --dim 64
expect "a job that does not fit, with the numbers" 1 'bytes|MiB' lm train --job big --text "$text" --layers 8 --dim 1024 --heads 8 --steps 1

# Two processes with one rank.
"$bin/zerod-lm" train --job twice --text "$text" "${small[@]}" --endpoints "$endpoint" --rank 0 --world 2 --timeout 10 >"$work/a.log" 2>&1 &
pids+=($!)
first=$!
# It is in when the daemon says that a worker has joined.
for _ in $(seq 200); do ctl -o json job show twice 2>/dev/null | grep -q '"joined": *1' && break; done
expect "a rank twice" 1 'rank 0' lm train --job twice --text "$text" "${small[@]}" --rank 0 --world 2
"$bin/zerod-lm" train --job twice --text "$text" "${small[@]}" --endpoints "$endpoint" --rank 1 --world 2 >"$work/b.log" 2>&1
equal "the others go on" 0 "$?"
wait "$first"
equal "both of them" 0 "$?"

# A learning rate that differs.
lm train --job rate --text "$text" "${small[@]}" --rank 0 --world 2 --lr 1e-3 >"$work/a.log" 2>&1 &
pids+=($!)
first=$!
lm train --job rate --text "$text" "${small[@]}" --rank 1 --world 2 --lr 2e-3 >"$work/b.log" 2>&1
equal "a learning rate that differs between ranks ends the launch" 75 "$?"
wait "$first"
check "the message names the field and the ranks" grep -Eq 'lr.*rank|rank.*lr' "$work/a.log" "$work/b.log"

expect "an unknown zeroctl command" 2 "no command 'jbo'" ctl jbo
expect "zeroctl without daemon" 3 'cannot connect' "$bin/zeroctl" --endpoints 127.0.0.1:1 status
expect "a job that is not there" 4 "no job 'none'" ctl job show none
expect "dropping needs --yes" 2 'yes' ctl job drop first
expect "the daemon is well" 0 'ready' ctl status

# ---- the daemon itself
expect "a port in use" 75 "in use|$port_one" "$bin/zerod" --set listen.port="$port_one" --set lanes.count=1 --set memory.budget=64MiB
expect "an unknown option" 2 'nonsense' "$bin/zerod" --nonsense
printf '[lanes]\ncount = 2\nnonsense = 1\n' >"$work/bad.conf"
expect "an unknown key, with file and line" 78 "bad.conf.*3.*nonsense" "$bin/zerod" --config "$work/bad.conf" --check-config
printf '[memory]\nbudget = 12 parsecs\n' >"$work/unit.conf"
expect "a value that is none" 78 'unit.conf.*2.*budget' "$bin/zerod" --config "$work/unit.conf" --check-config
printf '[lanes]\ncount = 2\n' >"$work/good.conf"
expect "a good configuration" 0 '' "$bin/zerod" --config "$work/good.conf" --check-config
expect "where a value came from" 0 'count.*2.*good.conf' "$bin/zerod" --config "$work/good.conf" --dump-config
expect "an address beyond loopback needs words" 78 'insecure' "$bin/zerod" --set listen.address=0.0.0.0 --check-config
expect "more memory than there is" 78 'budget' "$bin/zerod" --set memory.budget=100TiB --set listen.port=0
kill -TERM "$pid_one"
wait "$pid_one"
equal "SIGTERM ends the daemon with 0" 0 "$?"
exit 0
