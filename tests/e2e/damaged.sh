#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A network that flips bits, in every part of a frame and in both directions: the workers come back as often as it takes, and the bits are those of
# an undisturbed run.
source "$(dirname "$0")/lib.sh"
model=(units=12 numel=9000 extent=8192 rounds=6 world=2)
daemon one --set lanes.count=2
run() { # JOB ENDPOINT: both workers; rank 0's digest in $digest, exit codes added up in $rcs
	local other
	steady "$1" 1 endpoints="$2" "${model[@]}"
	other=$started
	steady "$1" 0 endpoints="$2" "${model[@]}"
	rcs=0
	for pid in "$started" "$other"; do wait "$pid" || ((rcs += $?)); done
	((rcs == 0)) || cat "$work/$1".*.err >&2
	digest=$(digest_in "$1.0")
}
run calm "127.0.0.1:$port_one"
want=$digest

# Passes frames on, and flips bit 6 of one byte of every ninth, never the first of a connection: at each place once in each direction, so that it
# ends.  A line in $work/flips for each.
exec {proxy}< <(exec python3 - "$port_one" "$work/flips" <<'PYTHON'
import itertools, socket, struct, sys, threading

HEADER = 32
places = list(range(HEADER)) + [HEADER + 1, -1]  # of the head, of the payload or the head
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(64)
log = open(sys.argv[2], "w", buffering=1)
lock = threading.Lock()
ways = {name: {"left": list(places), "frames": itertools.count()} for name in ("there", "back")}

def exactly(s, n):
    parts = b""
    while len(parts) < n:
        part = s.recv(min(n - len(parts), 1 << 18))
        if not part:
            raise EOFError
        parts += part
    return parts

def flip(name, frame):
    way = ways[name]
    with lock:
        if next(way["frames"]) % 9 or not way["left"]:
            return
        at = way["left"].pop(0)
        print(name, at, file=log)
    frame[at if at < len(frame) else -1] ^= 0x40

def pump(name, a, b):
    try:
        for n in itertools.count():
            header = exactly(a, HEADER)
            head_len, payload_len = struct.unpack_from("<II", header, 8)
            frame = bytearray(header + exactly(a, head_len + payload_len))
            if n:
                flip(name, frame)
            b.sendall(frame)
    except (EOFError, OSError):
        pass
    for s in (a, b):
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

print(listener.getsockname()[1], flush=True)
while True:
    a, _ = listener.accept()
    b = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    threading.Thread(target=pump, args=("there", a, b), daemon=True).start()
    threading.Thread(target=pump, args=("back", b, a), daemon=True).start()
PYTHON
)
pids+=($!)
read -r port <&"$proxy"
run flipped "127.0.0.1:$port"
equal "both workers end well" 0 "$rcs"
equal "with the undisturbed bits" "$want" "$digest"
equal "every place was damaged in both directions" 68 "$(wc -l <"$work/flips")"
expect "the daemon is well" 0 'ready' "$bin/zeroctl" --endpoints "127.0.0.1:$port_one" status
exit 0
