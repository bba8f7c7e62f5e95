# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts of tests/e2e, which are called with the build folder as first argument.
#   check NAME COMMAND...   prints "ok NAME" or "not ok NAME" with the command's output
#   daemon NAME [OPTIONS]   starts zerod on a free port of loopback; sets port_NAME and pid_NAME
#   at                      words before the programs that daemon and steady start: where they run, here unless a script says otherwise
#   work                    a folder of the script's own, removed at the end together with every process that was started here
set -uo pipefail
build=${1:?usage: $0 BUILD-DIR}
bin=$build/bin
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
at=()
pids=()
failures=0

cleanup() {
	local status=$?
	trap - EXIT INT TERM
	for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null; done
	for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null; done
	rm -rf "$work"
	((status == 0 && failures > 0)) && status=1
	exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

pass() { printf 'ok %s\n' "$*"; }
fail() {
	printf 'not ok %s\n' "$1"
	shift
	(($#)) && printf '    %s\n' "$@"
	((failures++)) || :
	return 1
}
check() {
	local name=$1 out rc=0
	shift
	out=$("$@" 2>&1) || rc=$?
	if ((rc == 0)); then pass "$name"; else
		fail "$name" "exit $rc of: $*"
		printf '%s\n' "$out" | sed 's/^/    /'
		return 1
	fi
}
# expect NAME STATUS PATTERN COMMAND...: the exit status and a line of the output (extended regular expression)
expect() {
	local name=$1 status=$2 pattern=$3 out rc=0
	shift 3
	out=$("$@" 2>&1) || rc=$?
	if ((rc == status)) && grep -Eq -- "$pattern" <<<"$out"; then pass "$name"; else
		fail "$name" "expected exit $status and /$pattern/; got exit $rc of: $*"
		printf '%s\n' "$out" | tail -n 30 | sed 's/^/    /'
		return 1
	fi
}
equal() { # NAME A B
	if [[ $2 == "$3" && -n $2 ]]; then pass "$1"; else fail "$1" "expected '$2', found '$3'"; fi
}
daemon() {
	local name=$1 out
	shift
	exec {out}< <(exec "${at[@]}" "$bin/zerod" --set daemon.name="$name" --set listen.port=0 --set lanes.count=1 --set memory.budget=256MiB "$@" \
		--port-file /dev/stdout 2>"$work/$name.log")
	printf -v "pid_$name" %s $!
	pids+=($!)
	local got
	if ! read -r got <&"$out"; then
		cat "$work/$name.log" >&2
		fail "daemon $name starts"
		exit 1
	fi
	printf -v "port_$name" %s "$got"
}

# steady JOB RANK key=value...: starts a steady_worker; its lines go to $work/JOB.RANK, its words to $work/JOB.RANK.err, its pid to $started.
# steady_held: the same for one with pause=..., after it says "paused"; its lines are read by go_on, which lets it go on to its end.
steady() {
	local name=$1.$2
	"${at[@]}" "$bin/steady_worker" job="$1" rank="$2" "${@:3}" >"$work/$name" 2>"$work/$name.err" </dev/null &
	started=$!
	pids+=($!)
}
declare -A words lines
steady_held() {
	local name=$1.$2 in out line
	mkfifo "$work/$name.in"
	exec {in}<>"$work/$name.in"
	exec {out}< <(exec "${at[@]}" "$bin/steady_worker" job="$1" rank="$2" "${@:3}" <"$work/$name.in" 2>"$work/$name.err")
	started=$!
	pids+=($!)
	words[$name]=$in lines[$name]=$out
	while read -r line <&"$out"; do [[ $line == paused ]] && return; done
	fail "$name pauses" "$(<"$work/$name.err")"
}
release() { echo >&"${words[$1]}"; }
go_on() { # JOB.RANK
	release "$1"
	cat <&"${lines[$1]}" >"$work/$1"
}
digest_in() { sed -n 's/^digest //p' "$work/$1"; } # JOB.RANK
# A line of a log that is still being written; the bound is for what never comes.
await() { # FILE PATTERN
	for _ in $(seq 10000); do grep -Eq -- "$2" "$1" && return; done
	return 1
}
