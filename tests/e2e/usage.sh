#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What people type at zeroctl, zerod and zerod-lm: help at every level, wrong arguments, output that cannot be written, Ctrl-C, a log that
# a peer cannot forge.
source "$(dirname "$0")/lib.sh"
ctl=$bin/zeroctl z=$bin/zerod lm=$bin/zerod-lm
text=/usr/share/common-licenses/GPL-3
closed=127.0.0.1:1 # nobody listens on it

# ---- help: everywhere, under both names, examples first
begins() { # WORD COMMAND...: ends with 0 and nothing on stderr, and its first line is the word
	local word=$1 out
	shift
	out=$("$@" 2>"$work/err") && [[ $(head -n 1 <<<"$out") == "$word" && ! -s $work/err ]]
}
for option in -h --help; do
	for topic in "" status job "job list" "job show" "job show NAME" "job drop" lane "lane list" doctor bench plan "plan memory" "plan comm" \
		"plan hybrid" "plan step" simulate "simulate adam" "simulate stage3"; do
		check "zeroctl $topic $option" begins Examples: "$ctl" $topic $option
	done
	check "zerod $option" begins Examples: "$z" $option
	check "zerod-lm $option" begins Examples: "$lm" $option
	for command in train reference; do
		check "zerod-lm $command $option" begins Examples: "$lm" $command $option
		expect "zerod-lm $command $option is about that command" 0 "^Usage: zerod-lm \[OPTION\.\.\.\] $command\$" "$lm" $command $option
	done
	check "zerod-lm reference $option has nothing of a worker" bash -c "! '$lm' reference $option | grep -E -- 'zerod-lm train|--(endpoints|job|rank|epoch|stage|prefetch|lease|timeout)\b'"
	check "zerod-lm train $option has nothing of the reference" bash -c "! '$lm' train $option | grep 'zerod-lm reference'"
	expect "zerod-lm reference $option has its own" 0 '^ +--accumulate' "$lm" reference $option
	expect "zerod-lm train $option has those of a worker" 0 '^ +--endpoints' "$lm" train $option
	expect "zerod-lm $option reference: the command may come later" 0 '^Usage: .* reference$' "$lm" $option reference
	expect "zerod-lm $option names both commands" 0 '^Usage: .* train\|reference$' "$lm" $option
	expect "zeroctl job drop $option is about that verb" 0 'on every daemon of --endpoints' "$ctl" job drop $option
	expect "zeroctl $option names the commands" 0 '^  job list\|show\|drop' "$ctl" $option
	expect "a verb that does not exist: its noun" 0 'zeroctl job drop NAME' "$ctl" job nonsense $option
done
expect "help before the verb" 0 'on every daemon of --endpoints' "$ctl" job -h drop
for program in "$ctl" "$z" "$lm"; do
	for option in -V --version; do expect "$(basename "$program") $option" 0 '^[a-z-]+ [0-9]+\.[0-9]+\.[0-9]+$' "$program" $option; done
	expect "$(basename "$program") --usage" 0 '^Usage: ' "$program" --usage
	expect "$(basename "$program"): messages begin with its name" 2 "^$(basename "$program"): .*nonsense" "$program" --nonsense
	for option in --help --version --usage; do
		check "$(basename "$program") $option to a full disk is a failure" bash -c "! '$program' $option >/dev/full 2>'$work/err' && grep -q written '$work/err'"
	done
done

# ---- zeroctl: missing, wrong and surplus arguments
wrong() { # PATTERN WORDS...
	local pattern=$1
	shift
	expect "zeroctl ${*@Q}" 2 "^zeroctl.*: $pattern" "$ctl" --endpoints "$closed" "$@"
}
wrong 'a command is missing'
wrong "no command 'jbo'; expected .*; see: zeroctl --help" jbo
wrong "expected no argument, found 'x'; see: zeroctl status --help" status x
wrong 'expected list, show or drop, found nothing; see: zeroctl job --help' job
wrong "expected list, show or drop, found 'x'" job x
wrong "expected no argument, found 'x'; see: zeroctl job list --help" job list x
wrong 'expected the name of a job, found nothing; see: zeroctl job show --help' job show
wrong "expected one name, found 'b' behind it" job show a b
wrong 'expected a name of 1 to 63 bytes, found 0' job show ''
wrong 'expected a name of 1 to 63 bytes, found 64' job drop "$(printf '%064d' 0)" --yes
wrong 'expected the name of a job, found nothing' job drop --yes
wrong 'expected a name in printable ASCII, found byte 0x0a at 1' job drop --yes $'a\nevent=forged'
wrong 'expected a name in printable ASCII, found byte 0xc3 at 0' job show $'\xc3\xa9'
wrong '.job drop x. destroys .* add --yes' job drop x
wrong 'expected list, found nothing; see: zeroctl lane --help' lane
wrong "expected list, found 'x'" lane x
wrong "expected no argument, found 'x'" lane list x
wrong "expected no argument, found 'x'" doctor x
wrong "expected only options, found 'x'" bench x
wrong "-n: expected a number from 8 to 1e\+10, found '7'" bench -n 7
wrong "--steps: expected a number from 1 to 1000, found 'x'" bench --steps x
wrong "option '--steps' requires an argument" bench --steps
wrong "invalid option -- 'n'" status -n 7
wrong "--output: expected table, json or csv, found 'xml'" status -o xml
wrong "--timeout: expected seconds between 0 and 86400, found '0'" status -t 0
for endpoint in '' : a a: :7410 a:b a:0 a:65536 a:123456 a:-1 a:1x; do
	expect "zeroctl --endpoints '$endpoint'" 2 "expected host:port .*found '$endpoint'" "$ctl" --endpoints "$endpoint" status
done
expect "ZEROCTL_OUTPUT" 2 "^zeroctl: ZEROCTL_OUTPUT: expected table, json or csv, found 'xml'" env ZEROCTL_OUTPUT=xml "$ctl" status
expect "ZEROCTL_TIMEOUT" 2 "^zeroctl: ZEROCTL_TIMEOUT: expected seconds .*found 'x'" env ZEROCTL_TIMEOUT=x "$ctl" status

# ---- no daemon
for words in status "job list" "job show x" "job drop x --yes" "lane list" doctor "bench --timeout 0.2"; do
	expect "zeroctl $words, and no daemon" 3 "$closed.*refused.*is zerod running there" "$ctl" --endpoints "$closed" $words
done

# ---- forms of the answer, options on both sides of the command
daemon one
endpoint=127.0.0.1:$port_one
export ZEROCTL_ENDPOINTS=$endpoint
"$lm" train --endpoints "$endpoint" --text "$text" --layers 1 --dim 32 --heads 2 --context 16 --batch 1 --steps 2 --job there >/dev/null
for words in status "job list" "job show there" "lane list" doctor "bench -n 1e5 --steps 2"; do
	check "$words -o json" bash -c "'$ctl' $words -o json | python3 -m json.tool"
	expect "$words -o csv" 0 '^table,' "$ctl" $words -o csv
	check "$words: the same before the command" bash -c "[[ \$('$ctl' -o csv $words | head -n 1) == \$('$ctl' $words -o csv | head -n 1) ]]"
	check "$words, NO_COLOR and a terminal's name: no escapes" bash -c "! TERM=xterm '$ctl' $words | grep -q \$'\\e'"
	check "$words to a full disk is a failure" bash -c "'$ctl' $words >/dev/full 2>'$work/err'; (( \$? == 1 )) && grep -q 'written' '$work/err'"
	check "$words says that once" test "$(wc -l <"$work/err")" -eq 1
done
for words in "plan memory -N 1e9" "simulate adam"; do
	check "$words to a full disk is a failure" bash -c "'$ctl' $words >/dev/full 2>'$work/err'; (( \$? == 1 ))"
	check "$words says that once" test "$(wc -l <"$work/err")" -eq 1
done
# A reader that has gone: as every tool, it dies of SIGPIPE without a word.
closed_pipe() {
	python3 - "$@" <<-'PYTHON'
	import os, signal, subprocess, sys
	r, w = os.pipe()
	os.close(r)
	p = subprocess.Popen(sys.argv[1:], stdout=w, stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL))
	err = p.stderr.read()
	sys.exit(p.wait() != -signal.SIGPIPE or err != b"")
	PYTHON
}
for words in status "job list" "job show there" "plan memory -N 1e9" "simulate adam -o json" --help "job --help"; do
	check "$words into a closed pipe" closed_pipe "$ctl" $words
done
check "the sample configuration into a closed pipe" closed_pipe "$z" --print-sample-config
expect "job drop, --yes behind it" 0 '' "$ctl" job drop there --yes
expect "and it is gone" 4 "no job 'there' on .*zeroctl job list" "$ctl" job show there

# ---- Ctrl-C ends a bench, and its job does not stay
"$ctl" bench -n 4e6 --steps 1000 --timeout 60 >/dev/null 2>"$work/bench.err" &
bench=$!
pids+=("$bench")
while kill -0 "$bench" 2>/dev/null; do
	"$ctl" -o json job list | grep -q '"step": [1-9]' && break
done
# What a shell starts in the background ignores SIGINT, unless it asks not to; zeroctl sets its own handler.
kill -INT "$bench"
rc=0
wait "$bench" || rc=$?
equal "an interrupted bench exits with 130" 130 "$rc"
equal "and has dropped its job" "[]" "$("$ctl" -o json job list | python3 -c 'import json, sys; print(json.load(sys.stdin)["tables"]["jobs"])')"

# ---- zerod: mistakes
expect "--set without a dot" 78 '^zerod: --set: expected section.key=value, found "x"' "$z" --set x
expect "--set of an unknown key" 78 '^zerod: --set: unknown key "x" in \[memory\]; there are budget, ' "$z" --set memory.x=1
expect "--set of a size too small" 78 '^zerod: --set: memory.budget: expected 16MiB to 128TiB, or auto, found "1MiB"' "$z" --set memory.budget=1MiB
expect "every mistake has the prefix" 78 '^zerod: --set: limits.jobs: ' "$z" --set memory.budget=1MiB --set limits.jobs=99
printf '[limits]\njobs = 99\n' >"$work/bad.conf"
expect "a mistake in a file: prefix, file, line" 78 "^zerod: $work/bad.conf:2: limits.jobs: expected" "$z" -c "$work/bad.conf"
expect "a folder as configuration" 78 "^zerod: $work: expected a regular file, found a directory" "$z" -c "$work"
expect "no name of a configuration" 2 '^zerod: --config: expected a file, found an empty name' "$z" -c '' --check-config
expect "no name of a port file" 2 '^zerod: --port-file: expected a file, found an empty name' "$z" --port-file '' --check-config
for option in --print-sample-config --print-config-man --dump-config; do
	expect "zerod $option to a full disk is a failure" 1 'zerod: standard output cannot be written' bash -c "'$z' $option >/dev/full"
done

# ---- zerod-lm: launchers' variables, output, the terminal
run() { env -u RANK -u WORLD_SIZE "$@" "$lm" train --endpoints "$endpoint" --text "$text" --steps 1; }
expect "MASTER_PORT" 2 "^zerod-lm: MASTER_PORT: expected a whole number from 1 to 65535, found 'x'" run RANK=0 WORLD_SIZE=1 MASTER_PORT=x
expect "LOCAL_WORLD_SIZE" 2 "^zerod-lm: LOCAL_WORLD_SIZE: expected a whole number from 1 to 2, found '3'" run RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=3
lm_wrong() { # PATTERN options
	expect "zerod-lm ${*:2}" 2 "^zerod-lm: $1" "$lm" train --endpoints "$closed" --text "$text" "${@:2}"
}
lm_wrong "--kernels: expected one of scalar, avx2, avx512; found 'mmx'" --kernels mmx
lm_wrong "--beta2: expected a number from 0 to 0.9999999, found '1'" --beta2 1
lm_wrong '--sample-weights=fetch is for stage 3' --sample-weights fetch --stage 2
lm_wrong 'gather_bytes_max is 5, but the largest unit alone takes' --gather-bytes 5
lm_wrong 'endpoint "a:b": the port must be 1 to 65535' --endpoints a:b
lm_wrong 'endpoint "a:b": the port must be 1 to 65535' --endpoints a:b --stage 0
expect "two commands" 2 "^zerod-lm: expected one command and options, found 'reference'" "$lm" train reference --text "$text"
for json in "" --json; do
	expect "zerod-lm $json to a full disk is a failure" 1 'zerod-lm: standard output cannot be written' \
		bash -c "'$lm' reference --text '$text' --layers 1 --dim 32 --steps 1 $json >/dev/full"
done
small=(--endpoints "$endpoint" --text "$text" --layers 1 --dim 32 --heads 2 --context 16 --batch 1)
"$lm" train "${small[@]}" --steps 1 --job once >/dev/null
expect "a launch again without a higher epoch is told the ways out" 1 \
	'epoch 2 \(zerod_options.epoch, zerod-lm --epoch\), or drop the job \(zeroctl --yes job drop once\)' "$lm" train "${small[@]}" --steps 2 --job once
check "which is one" "$lm" train "${small[@]}" --steps 2 --job once --epoch 2
# Not none, with which it would wait for rank 1 for ever.  How far it gets within a millisecond is up to the machine.
brief() {
	local rc=0
	timeout -s KILL 60 "$lm" train "${small[@]}" --job brief --rank 0 --world 2 --timeout 0.0001 >"$work/brief" 2>&1 || rc=$?
	((rc == 75 || rc == 1)) && grep -qE 'rank 0: (timed out|cannot connect): .* after [0-9]+ ms' "$work/brief"
}
check "a time limit below a millisecond is one" brief
# Two launches of torchrun without an id, one after the other on one host: the second is not taken for the first.
agent() { env RANK=0 WORLD_SIZE=1 LOCAL_WORLD_SIZE=1 TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 \
	TORCHELASTIC_ERROR_FILE="/tmp/torchelastic_x/none_$1/attempt_0/0/error.json" "$lm" train "${small[@]}" --steps 2 --job torch; }
check "a launch of torchrun" agent aaaa
expect "another one" 1 'epoch 1 belongs to launch [0-9a-f]*, rank 0 comes from launch' agent bbbb
# A launcher repeats the command line at a restart, --epoch included.
restart() { env RANK=0 WORLD_SIZE=1 TORCHELASTIC_RUN_ID=id TORCHELASTIC_RESTART_COUNT="$1" "$lm" train "${small[@]}" --steps $((3 + $1)) --job torch --epoch 2; }
check "a launch of torchrun with an epoch" restart 0
check "which torchrun starts again" restart 1
# hydra of MPICH: two workers of two, not two that are alone.
hydra() { env PMI_RANK="$1" PMI_SIZE=2 MPI_LOCALRANKID="$1" MPI_LOCALNRANKS=2 "$lm" train "${small[@]}" --steps 2 --job hydra --json; }
hydra 0 >"$work/hydra" &
pids+=($!)
check "rank 1 of a launch of hydra" hydra 1
wait $!
equal "ends with the bits of two" "$("$lm" reference "${small[@]}" --steps 2 --world 2 --json | grep -o '"sha256":.*')" "$(grep -o '"sha256":.*' "$work/hydra")"
check "a rank that the environment gives the reference is not asked" test "$(RANK=1 WORLD_SIZE=2 "$lm" reference "${small[@]}" --steps 2 --json | grep -o '"sha256":.*')" = \
	"$(grep -o '"sha256":.*' "$work/hydra")"
expect "--timeout bounds the wait for a daemon, too" 1 'cannot connect: not connected after [0-9]{1,4} ms' "$lm" train "${small[@]}" --steps 1 --timeout 0.5 --endpoints 127.0.0.1:1
batch() { env SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_JOB_ID=8 "$@" "$lm" train "${small[@]}" --steps 2 --job batch; }
check "in Slurm's batch script, a job for one task" batch
expect "a job for two, without srun" 2 '^zerod-lm: SLURM_NTASKS is 2, but .*start it with srun' batch SLURM_NTASKS=2

# Ctrl-C on a terminal: what comes after the progress line is on a line of its own.
python3 - "$lm" train "${small[@]}" --steps 1000000 --job terminal >"$work/pty.log" 2>&1 <<'PYTHON'
import os, pty, signal, sys

pid, fd = pty.fork()
if pid == 0:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
seen = b""
while b"step 3/" not in seen:
    seen += os.read(fd, 4096)
os.write(fd, b"\x03")
try:
    while True:
        part = os.read(fd, 4096)
        if not part:
            break
        seen += part
except OSError:  # the terminal's other side is closed
    pass
_, status = os.waitpid(pid, 0)
assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGINT, status
assert seen.endswith(b"\r\n"), seen[-200:]
assert seen.count(b"\n") == 1, seen  # the progress line is one line, until it is ended
PYTHON
rc=$?
equal "Ctrl-C ends the progress line" 0 "$rc"
((rc == 0)) || sed 's/^/    /' "$work/pty.log"

# ---- started with closed descriptors, as by some supervisors: what is printed goes nowhere, not into a socket that has their number
closed_ones() { # NAME STATUS WORDS...: with standard output closed, standard error closed, all of them
	local name=$1 status=$2
	shift 2
	rc=0 && "$@" >&- 2>"$work/err" || rc=$?
	equal "$name, standard output closed" "$status" "$rc"
	rc=0 && "$@" 2>&- >/dev/null || rc=$?
	equal "$name, standard error closed" 0 "$rc"
	rc=0 && "$@" <&- >&- 2>&- || rc=$?
	equal "$name, all closed" "$status" "$rc"
}
at=1
again() { "$lm" train "${small[@]}" --steps "$at" --job closed --epoch $((at++)); }
closed_ones "zerod-lm train" 1 again
check "which says that its output did not arrive" grep -q 'standard output cannot be written' "$work/err"
closed_ones "zeroctl status" 1 "$ctl" status
: >"$work/closed.port"
(exec "$z" --set listen.port=0 --set lanes.count=1 --set memory.budget=64MiB --port-file "$work/closed.port" <&- >&- 2>&-) &
closed_pid=$!
pids+=("$closed_pid")
await "$work/closed.port" '^[0-9]+$'
expect "zerod, all closed" 0 'ready' "$ctl" --endpoints "127.0.0.1:$(<"$work/closed.port")" status
kill -TERM "$closed_pid"
rc=0 && wait "$closed_pid" || rc=$?
equal "SIGTERM ends it with 0" 0 "$rc"

# ---- few descriptors, little address space: libuv would end the program without a word
ended_by_us() { # NAME "LIMIT" PATTERN COMMAND...: whatever the limit, no signal ends it; and says so once at least
	local name=$1 limit=$2 pattern=$3 told=0 n
	shift 3
	for n in "${limits[@]}"; do
		rc=0
		(ulimit -c 0 && ulimit "$limit" "$n" && exec timeout -s KILL 60 "$@") >"$work/out" 2>"$work/err" || rc=$?
		check "$name, ulimit $limit $n: ends by itself ($rc)" test "$rc" -lt 126
		! grep -Eq "$pattern" "$work/err" || told=1
	done
	equal "$name, ulimit $limit: says what is missing" 1 "$told"
}
limits=(4 5 6 8 10)
ended_by_us "zerod" -n 'too many open files; raise LimitNOFILE= or ulimit -n' "$z" --set listen.port=0 --set lanes.count=2 --set memory.budget=64MiB
ended_by_us "zerod-lm" -n 'fewer than 8 free file descriptors for a client; raise ulimit -n' "$lm" train --endpoints "$closed" --text "$text" --steps 1
ended_by_us "zeroctl bench" -n 'fewer than 8 free file descriptors for a client; raise ulimit -n' "$ctl" --endpoints "$closed" --timeout 1 bench
ended_by_us "zeroctl status" -n 'refused' "$ctl" --endpoints "$closed" status
if [[ $(nm "$ctl" 2>/dev/null) != *__asan_init* ]]; then
	mapfile -t limits < <(seq 10000 4000 120000)
	ended_by_us "zeroctl bench" -v 'no room for the threads of a client' "$ctl" --endpoints "$closed" --timeout 0.1 bench
fi

# ---- little address space: the BLAS would wait for it for ever
if [[ $(nm "$lm" 2>/dev/null) == *__asan_init* ]]; then
	echo "skip little address space: the sanitizer needs more of it than any limit"
else
	told=0
	for mib in $(seq 100 25 300); do
		rc=0
		(ulimit -v $((mib * 1024)) && OPENBLAS_NUM_THREADS=1 exec timeout -s KILL 60 "$lm" reference --text "$text" --layers 1 --dim 32 --heads 2 --context 16 --batch 1 --steps 1) >"$work/out" 2>"$work/err" || rc=$?
		equal "$mib MiB of address space: ends" 0 "$((rc == 137))"
		if ((rc == 1)) && grep -q 'of address space for matrix products' "$work/err"; then told=1; fi
	done
	equal "and says what is missing" 1 "$told"
fi

# ---- the log: what peers say stays in its value
for name in 'x" level=error event=forged text="' 'ends with \' '"' "it's"; do
	expect "a job called $name is not there" 4 'no job' "$ctl" --yes job drop "$name"
done
check "the daemon has logged them" grep -q 'text="no job x\\" level=error event=forged text=\\" on lane' "$work/one.log"
odd=$(grep -vE '^time=[^ "]+( [a-z_]+=("([^"\\]|\\["\\nrt]|\\x[0-9a-f][0-9a-f])*"|[^ "]+))+(: .*)?$' "$work/one.log" || :)
check "every line is key=value, whatever peers said" test -z "$odd" || sed 's/^/    /' <<<"$odd"
exit 0
