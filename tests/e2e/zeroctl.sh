#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# zeroctl against running daemons: tables for people, JSON and CSV for programs, exit codes; several jobs at once.
source "$(dirname "$0")/lib.sh"
daemon one --set lanes.count=2
daemon two
endpoints=127.0.0.1:$port_one,127.0.0.1:$port_two
ctl() { "$bin/zeroctl" --endpoints "$endpoints" "$@"; }
json() { python3 -c 'import json, sys; d = json.load(sys.stdin); print(eval(sys.argv[1], {"d": d}))' "$1"; }

small=(--text /usr/share/common-licenses/GPL-3 --layers 1 --dim 64 --heads 2 --context 16 --batch 1 --steps 3 --endpoints "$endpoints")
"$bin/zerod-lm" train "${small[@]}" --job alpha >/dev/null 2>"$work/alpha.err" &
alpha=$!
"$bin/zerod-lm" train "${small[@]}" --job beta --optimizer adam >/dev/null 2>"$work/beta.err"
equal "two jobs at once on the same daemons: beta" 0 $?
wait "$alpha"
equal "two jobs at once on the same daemons: alpha" 0 $?

equal "status has a row per daemon" 2 "$(ctl -o json status | json 'len(d["tables"]["daemons"])')"
gap=127.0.0.1:1,$endpoints # nobody listens on the first
expect "status with one daemon down says so" 3 '127\.0\.0\.1:1 .*unreachable' "$bin/zeroctl" --endpoints "$gap" status
equal "and shows the others" "['unreachable', 'ready', 'ready']" "$("$bin/zeroctl" --endpoints "$gap" -o json status 2>/dev/null |
	json '[r["state"] for r in d["tables"]["daemons"]]')"
equal "lane list has a row per lane" 3 "$(ctl -o json lane list | json 'len(d["tables"]["lanes"])')"
equal "job list has both jobs" "['alpha', 'beta']" "$(ctl -o json job list | json 'sorted(j["name"] for j in d["tables"]["jobs"])')"
equal "each has made its steps" "[3, 3]" "$(ctl -o json job list | json '[j["step"] for j in d["tables"]["jobs"]]')"
equal "job show names the optimizer" "adam" "$(ctl -o json job show beta | json 'd["inputs"]["optimizer"]')"
equal "job show lists the units" "['embed', 'block.0', 'head']" "$(ctl -o json job show beta | json '[u["name"] for u in d["tables"]["units"]]')"
equal "and the ranks" "[(0, 3, 0, True)]" "$(ctl -o json job show beta |
	json '[(r["rank"], r["joined_lanes"], r["committed_lanes"], r["silent_seconds"] is not None) for r in d["tables"]["ranks"]]')"
expect "a table for people has a heading" 0 '^ *JOB +STATE' ctl job list
check "no colour and no progress off a terminal" bash -c "! '$bin/zeroctl' --endpoints $endpoints job list | grep -q \$'\\e'"
expect "csv has a header line" 0 '^(table,)?.*name,state,step' ctl -o csv job list
used=$(ctl -o json status | json 'sum(r["memory_used_bytes"] for r in d["tables"]["daemons"])')
freed=$(ctl --yes -o json job drop beta | json 'd["inputs"]["freed_bytes"]')
left=$(ctl -o json status | json 'sum(r["memory_used_bytes"] for r in d["tables"]["daemons"])')
equal "dropping gives the memory back, to the byte" "$((used - freed))" "$left"
equal "the other job is untouched" "['alpha']" "$(ctl -o json job list | json '[j["name"] for j in d["tables"]["jobs"]]')"
"$bin/zerod-lm" train "${small[@]}" --job half >/dev/null 2>&1
expect "a drop that does not get to every daemon says how far it got" 3 "job 'half' is dropped on 2 lanes already" \
	"$bin/zeroctl" --endpoints "127.0.0.1:$port_one,127.0.0.1:1" --yes job drop half
expect "who trains the rest is told the way out" 1 'its state is lost; no launch can go on.* drop the job everywhere .zeroctl --yes job drop half.' \
	"$bin/zerod-lm" train "${small[@]}" --job half --epoch 2
check "which is one" ctl --yes job drop half
expect "doctor checks this host" 0 'kernels=' ctl doctor
expect "doctor asks the daemons that are named" 0 'lane=1 of 2 answers' ctl doctor
expect "bench measures and drops its job" 0 'whole step' ctl --timeout 60 bench -n 400000 --steps 3
equal "nothing is left of it" "['alpha']" "$(ctl -o json job list | json '[j["name"] for j in d["tables"]["jobs"]]')"
expect "environment instead of options" 0 'alpha' env ZEROCTL_ENDPOINTS="$endpoints" "$bin/zeroctl" job list
expect "options win over the environment" 3 'cannot connect' env ZEROCTL_ENDPOINTS="$endpoints" "$bin/zeroctl" --endpoints 127.0.0.1:1 job list
expect "a drop that leaves lanes elsewhere says how many" 0 'dropped 2 of the 3 lanes' "$bin/zeroctl" --endpoints "127.0.0.1:$port_one" --yes job drop alpha
expect "the rest is dropped with the same words" 0 'dropped 1 of the 3 lanes' ctl --yes job drop alpha
expect "plan takes the format from before the command" 0 '"command"' "$bin/zeroctl" -o json plan memory -N 7.5e9 -n 64
expect "plan's own value" 0 '31\.40' "$bin/zeroctl" plan memory -N 7.5e9 -n 64
expect "simulate checks itself" 0 '' "$bin/zeroctl" simulate adam
# peer NAME BANNER: a port that accepts, says the banner, and then nothing more; its address in $NAME
peer() {
	printf -v "$1" %s "$(
		python3 - "$work/$1.pid" "$2" <<-'PY'
		import os, socket, sys
		s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(8)
		print("127.0.0.1:%d" % s.getsockname()[1], flush=True)
		pid = os.fork()
		if pid:
		    open(sys.argv[1], "w").write(str(pid))
		else:
		    os.close(1); os.close(2)
		    while True:
		        c, _ = s.accept(); c.settimeout(20)
		        c.sendall(sys.argv[2].encode())
		        try:
		            while c.recv(4096): pass
		        except OSError: pass
		PY
	)"
	pids+=("$(<"$work/$1.pid")")
}
peer mute ""
expect "a timeout is 124" 124 'in time' "$bin/zeroctl" --timeout 0.2 --endpoints "$mute" status
rc=0 && timeout -s KILL 30 "$bin/zeroctl" --timeout 0.0001 --endpoints "$mute" bench >/dev/null 2>&1 || rc=$?
check "a timeout below a millisecond is one" test "$rc" -eq 3 -o "$rc" -eq 124
peer mail "220 mail ESMTP"$'\r\n'
expect "a peer that is no zerod is told from one that is slow, however little it says" 3 'expected a frame that begins with "ZROD", found bytes 32 32 30 20' \
	timeout -s KILL 60 "$bin/zeroctl" --timeout 600 --endpoints "$mail" status
exit 0
