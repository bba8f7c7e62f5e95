#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The daemon as its operators meet it: options, exit codes, configuration, signals, the service manager's socket.
source "$(dirname "$0")/lib.sh"
z=$bin/zerod

expect "--version" 0 '^zerod [0-9]+\.[0-9]+\.[0-9]+$' "$z" --version
expect "--help names every key" 0 'timeouts.drain = 30s' "$z" --help
expect "unknown option" 2 'unrecognized option' "$z" --no-such-option
expect "stray argument" 2 '^zerod: expected only options, found "x"' "$z" x
printf '[limits]\njobs = 99\nlimit = 1\n' >"$work/bad.conf"
expect "--check-config names file and line" 78 'bad.conf:2: limits.jobs: expected 1 to 16, found "99"' "$z" -c "$work/bad.conf" --check-config
expect "and every mistake" 78 'bad.conf:3: unknown key "limit"' "$z" -c "$work/bad.conf" --check-config
expect "a wrong configuration does not start" 78 'bad.conf:2' "$z" -c "$work/bad.conf"
expect "a missing file" 78 'none.conf: cannot be read: No such file' "$z" -c "$work/none.conf"
expect "an open address without TLS" 78 'is not loopback' "$z" --set listen.address=0.0.0.0
expect "more memory than there is" 78 'MiB are there' "$z" --set memory.budget=128TiB --set listen.port=0
expect "unknown kernels" 78 'ZEROD_KERNELS: expected scalar' env ZEROD_KERNELS=mmx "$z" --set listen.port=0
printf '[listen]\nport = 0\n[log]\nlevel = debug\n' >"$work/z.conf"
mkdir "$work/z.conf.d"
printf '[daemon]\nname = from-dropin\n' >"$work/z.conf.d/10-name.conf"
expect "--dump-config tells origins" 0 'name = from-dropin +; .*10-name.conf:2' "$z" -c "$work/z.conf" --dump-config
expect "the environment over drop-ins" 0 'name = from-env +; environment ZEROD_DAEMON_NAME' env ZEROD_DAEMON_NAME=from-env "$z" -c "$work/z.conf" --dump-config
expect "--set over the environment" 0 'name = from-flag +; --set' env ZEROD_DAEMON_NAME=from-env "$z" -c "$work/z.conf" --set daemon.name=from-flag --dump-config

daemon one
expect "a port in use" 75 "port $port_one: another process has it" "$z" --set listen.port="$port_one" --set memory.budget=64MiB
kill -TERM "$pid_one"
rc=0
wait "$pid_one" || rc=$?
equal "SIGTERM ends it with 0" 0 "$rc"
check "a low limit on files is named, with the fix" bash -c "ulimit -n 200; timeout 20 '$z' --set listen.port=0 --set memory.budget=64MiB \
	--set lanes.count=1 --set listen.port_file=/none/x 2>&1 | grep -q 'files=low limit=200 needed=[0-9]*: raise LimitNOFILE='"
away=192.0.2.1 # of the range for documentation: nobody has it
expect "an address that is not there" 78 "cannot listen on $away port 0: no interface of this host has this address" \
	"$z" --set listen.port=0 --set memory.budget=64MiB --set lanes.count=1 --set listen.address="$away" --set listen.insecure=I-accept-plaintext
if (($(</proc/sys/net/ipv4/ip_unprivileged_port_start) > 1)); then
	unprivileged=()
	((EUID)) || unprivileged=(setpriv --inh-caps=-net_bind_service --bounding-set=-net_bind_service)
	expect "a port that needs privileges" 78 'port 1: .*below 1024.*listen.port' "${unprivileged[@]}" "$z" --set listen.port=1 --set memory.budget=64MiB
else
	echo "skip daemon: here any user may take any port"
fi
expect "a port file that cannot be written is a mistake in the configuration" 78 'listen.port_file: cannot write /proc/x/port: No such file .*choose' \
	"$z" --set listen.port=0 --set memory.budget=64MiB --set lanes.count=1 --port-file /proc/x/port
check "one event a line" bash -c "! grep -vqE '^time=[^ ]+ level=[a-z]+ event=[a-z-]+' '$work/one.log'"

# The service manager's side: a datagram socket that hears READY, RELOADING, STOPPING and the watchdog.
python3 - "$z" "$work" >"$work/notify.log" 2>&1 <<'PYTHON'
import os, signal, socket, subprocess, sys

zerod, work = sys.argv[1:]
sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sock.bind(work + "/notify")
sock.settimeout(20)
conf = work + "/reload.conf"


def write(timeout, jobs):
    with open(conf, "w") as f:
        f.write(f"[listen]\nport = 0\n[lanes]\ncount = 2\n[memory]\nbudget = 128MiB\n[limits]\nhello_timeout = {timeout}\njobs = {jobs}\n")


def hear(word):
    while True:
        text = sock.recv(4096).decode()
        if word in text:
            return


write("5s", 16)
log = open(work + "/reload.log", "w+")
env = dict(os.environ, NOTIFY_SOCKET=work + "/notify", WATCHDOG_USEC="100000")
daemon = subprocess.Popen([zerod, "-c", conf], stderr=log, env=env)
try:
    hear("READY=1")
    hear("WATCHDOG=1")
    hear("WATCHDOG=1")
    write("6s", 15)
    daemon.send_signal(signal.SIGHUP)
    hear("RELOADING=1")
    hear("READY=1")
    write("never", 15)
    daemon.send_signal(signal.SIGHUP)
    hear("RELOADING=1")
    hear("READY=1")
    daemon.send_signal(signal.SIGTERM)
    hear("STOPPING=1")
    assert daemon.wait(20) == 0, daemon.returncode
finally:
    if daemon.poll() is None:
        daemon.kill()
        daemon.wait()
log.seek(0)
text = log.read()
for expected in (
    "event=reload key=limits.hello_timeout from=5s to=6s",
    "event=reload key=limits.jobs from=16 to=15: needs a restart, not applied",
    "event=reloaded applied=1 not_applied=1",
    "event=reload-refused",
    "event=stopped",
):
    assert expected in text, (expected, text)
PYTHON
rc=$?
equal "READY, WATCHDOG, RELOADING, STOPPING; reload applies what it can" 0 "$rc"
((rc == 0)) || sed 's/^/    /' "$work/notify.log"

# With JOURNAL_STREAM the lines carry priorities.
stream() { # OPTION...
	exec 2>"$work/journal.log"
	export JOURNAL_STREAM
	JOURNAL_STREAM=$(stat -L -c %d:%i "$work/journal.log")
	exec "$z" --set listen.port=0 --set memory.budget=64MiB --set lanes.count=1 "$@"
}
(stream --set limits.jobs=99 --set limits.hello_timeout=never)
equal "mistakes in the configuration are errors in the journal" 2 "$(grep -cE '^<3>zerod: --set: limits\.(jobs|hello_timeout): ' "$work/journal.log")"
exec {out}< <(stream --port-file /dev/stdout)
journal=$!
pids+=("$journal")
read -r -u "$out" _
kill -TERM "$journal"
wait "$journal"
check "priorities for the journal" grep -qE '^<5>event=listening' "$work/journal.log"

# The unit has this umask, and those who want the port are other users.
(umask 077; exec "$z" --set listen.port=0 --set memory.budget=64MiB --set lanes.count=1 --port-file "$work/port" 2>"$work/umask.log") &
pids+=($!)
check "it listens" await "$work/umask.log" event=listening
equal "every user may read the port file" 644 "$(stat -c %a "$work/port")"
exit 0
