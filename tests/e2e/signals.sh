#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Signals while trainers are at it: SIGHUP in the middle of LOAD and of a step loses nothing and names what cannot change; SIGTERM and a second one in
# the middle of both end the daemon with 0 and every worker with a reason.
source "$(dirname "$0")/lib.sh"
model=(units=40 numel=4000 rounds=4 world=2)
conf=$work/signals.conf
# configure JOBS LINE...: limits.jobs, which needs a restart, and lines of [timeouts], which do not.  A reader sees the old file or the new one.
configure() {
	printf '[limits]\njobs = %s\n[timeouts]\n' "$1" >"$conf.new"
	printf '%s\n' "${@:2}" >>"$conf.new"
	mv "$conf.new" "$conf"
}
says() { check "$1" grep -Eq "$3" "$work/$2"; } # NAME FILE PATTERN
awaits() { check "$1" await "$work/$2" "$3"; }

# ---- SIGHUP
configure 16
daemon hup -c "$conf" --set lanes.count=2
hup=127.0.0.1:$port_hup
steady calm 1 endpoints="$hup" "${model[@]}"
steady calm 0 endpoints="$hup" "${model[@]}"
wait "$started"
equal "undisturbed" 0 "$?"
want=$(digest_in calm.0)

steady load 1 endpoints="$hup" "${model[@]}"
steady_held load 0 endpoints="$hup" "${model[@]}" pause=load
configure 15 'peer = 1s' 'linger = 10ms'
kill -HUP "$pid_hup"
awaits "SIGHUP in LOAD: it reads the configuration" hup.log 'event=reloaded applied=2 not_applied=1'
says "applies what can change" hup.log 'event=reload key=timeouts.peer from=30s to=1s$'
says "names what cannot" hup.log 'event=reload key=limits.jobs from=16 to=15: needs a restart, not applied'
configure 99
kill -HUP "$pid_hup"
awaits "a configuration with a mistake is refused, with file and line" hup.log 'event=reload-refused text=.*signals.conf:2: limits.jobs: expected 1 to 16'
go_on load.0
equal "and the job has the undisturbed bits" "$want" "$(digest_in load.0)"

steady push 1 endpoints="$hup" "${model[@]}"
steady_held push 0 endpoints="$hup" "${model[@]}" pause=push
configure 14 'peer = 2s' 'drain = 3s'
kill -HUP "$pid_hup"
awaits "SIGHUP in a step: it reads the configuration" hup.log 'event=reload key=timeouts.drain from=30s to=3s$'
awaits "names what cannot change" hup.log 'event=reload key=limits.jobs from=16 to=14: needs a restart, not applied'
go_on push.0
equal "and the job has the undisturbed bits" "$want" "$(digest_in push.0)"

steady storm 1 endpoints="$hup" "${model[@]}"
steady storm 0 endpoints="$hup" "${model[@]}"
for ((i = 0; i < 2000; i++)); do
	kill -0 "$started" 2>/dev/null || break
	configure 16 "peer = $((1 + i % 5))s"
	kill -HUP "$pid_hup"
done
wait "$started"
equal "SIGHUP all the time ($i times): the job ends well" 0 "$?"
equal "with the undisturbed bits" "$want" "$(digest_in storm.0)"
check "nobody had to come again" bash -c "! grep -h . '$work'/*.err"
kill -TERM "$pid_hup"
wait "$pid_hup"
equal "the daemon ends with 0" 0 "$?"

# ---- SIGTERM
# begin DAEMON PLACE TIMEOUT options: two workers, rank 0 held at PLACE; what a worker waits for, in ms; zerod's options
begin() {
	local port=port_$1
	daemon "$1" --set lanes.count=2 "${@:4}"
	steady "$1" 1 endpoints="127.0.0.1:${!port}" "${model[@]}" timeout="$3"
	other=$started
	steady_held "$1" 0 endpoints="127.0.0.1:${!port}" "${model[@]}" timeout="$3" pause="$2"
}
ended() { # DAEMON [go_on]: it, with 0, and both workers, with a reason; go_on: rank 0 has to go on before
	local pid=pid_$1
	[[ ${2:-} != go_on ]] || release "$1.0"
	wait "${!pid}"
	equal "$1: the daemon ends with 0" 0 "$?"
	says "$1: in order" "$1.log" 'event=stopped$'
	go_on "$1.0"
	wait "$other"
	equal "$1: rank 1 ends for its launcher" 75 "$?"
	check "$1: rank 1 says why" test -s "$work/$1.1.err" # it may have waited for rank 0 for too long before
	says "$1: rank 0 says why" "$1.0.err" '127.0.0.1:[0-9]+.*(refused|lost|reset|shutting down)'
}

begin sigterm load 2000
kill -TERM "$pid_sigterm"
ended sigterm
says "sigterm: without waiting, no round being open" sigterm.log 'event=drained$'

# Nothing holds this one: SIGTERM comes while the daemon is busy taking the weights in.
daemon busy
steady busy 0 endpoints="127.0.0.1:$port_busy" units=4 numel=3000000 timeout=2000
awaits "busy: the weights are on their way" busy.log 'event=create job=busy'
kill -TERM "$pid_busy"
wait "$pid_busy"
equal "busy: the daemon ends with 0" 0 "$?"
wait "$started"
equal "busy: the worker ends for its launcher" 75 "$?"
says "busy: and says why" busy.0.err '127.0.0.1:[0-9]+.*(refused|lost|reset|shutting down)'

begin step push 10000
kill -TERM "$pid_step"
awaits "step: the daemon waits for the round" step.log 'event=draining'
check "step: nobody new gets in" bash -c "! : 2>/dev/null <>/dev/tcp/127.0.0.1/$port_step"
check "step: it has not ended" kill -0 "$pid_step"
kill -HUP "$pid_step"
awaits "step: SIGHUP is refused in words" step.log 'event=reload-refused text="the daemon is ending'
ended step go_on
says "step: the round that was open ended" step.log 'event=drained$'
check "step: and was the last" bash -c "grep -qx 'round 2' '$work'/step.[01] && ! grep -qx 'round 3' '$work'/step.[01]"

begin limit push 2000 --set timeouts.drain=1s
kill -TERM "$pid_limit"
ended limit
says "limit: not waiting longer than timeouts.drain" limit.log 'event=drain-timeout'

again() { # SIGNAL PID: until it is gone
	for ((i = 0; i < 1000000; i++)); do kill -"$1" "$2" 2>/dev/null || return 0; done
}
for place in load push; do
	name=twice_$place pid=pid_twice_$place
	begin "$name" "$place" 2000
	again TERM "${!pid}"
	ended "$name"
	check "$name: without waiting for timeouts.drain" bash -c "! grep -q drain-timeout '$work/$name.log'"
done
says "a second SIGTERM hurries" twice_push.log 'event=hurry'
for signal in TERM INT HUP; do
	pid=pid_end_$signal
	# So many lanes take their time to be freed.
	daemon "end_$signal" --set lanes.count=64 --set memory.windows=8 --set memory.budget=1GiB
	kill -TERM "${!pid}"
	again "$signal" "${!pid}"
	wait "${!pid}"
	equal "SIG$signal again and again while it ends: still 0" 0 "$?"
done
exit 0
