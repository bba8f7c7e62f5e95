#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Hosts of their own: daemons and workers in network namespaces on one switch, with addresses, cables that are pulled and rates that are small.  Needs root.
source "$(dirname "$0")/lib.sh"
text=$work/text
for i in $(seq 400); do echo "line $i of a text that a small model can learn; $((i * i)) is $i squared."; done >"$text"
hosts=(a b w0 w1) # two daemons, two workers
me=zerod-$$
names_before=0
[[ -d /etc/netns ]] && names_before=1
address_a=10.77.0.1 address_b=10.77.0.2 address_w0=10.77.0.10 address_w1=10.77.0.11

ended() {
	local status=$? host
	for host in switch "${hosts[@]}"; do
		ip netns del "$me-$host" 2>/dev/null
		rm -rf "/etc/netns/$me-$host"
	done
	((names_before)) || rmdir /etc/netns 2>/dev/null
	(exit "$status")
	cleanup
}
trap ended EXIT

# plug HOST: a new host, or the same one again after its cable was gone
plug() {
	local ns=$me-$1 address=address_$1
	ip netns del "$ns" 2>/dev/null
	ip netns add "$ns" && ip -n "$me-switch" link add name "$1" type veth peer name eth0 netns "$ns" && ip -n "$me-switch" link set dev "$1" master bridge up &&
		ip -n "$ns" link set lo up && ip -n "$ns" link set eth0 up && ip -n "$ns" addr add "${!address}/24" dev eth0 && ip netns exec "$ns" true
}
plug_all() {
	local host
	ip netns add "$me-switch" && ip -n "$me-switch" link add bridge type bridge && ip -n "$me-switch" link set bridge up || return
	for host in "${hosts[@]}"; do plug "$host" || return; done
}
# A cable that is pulled shows at its host, and TCP tries again every half a second.  Farther away nothing shows, and TCP's pauses double.
pull() { ip -n "$me-switch" link set dev "$1" down; }
put() { ip -n "$me-switch" link set dev "$1" up; }
cut() { ip -n "$me-switch" link set dev "$1" nomaster; }
mend() { ip -n "$me-switch" link set dev "$1" master bridge; }
on() { at=(ip netns exec "$me-$1"); } # where daemons and workers are started from now on
ctl() { ip netns exec "$me-a" "$bin/zeroctl" --endpoints "$address_a:$port_a" -o json "$@"; }
# silent JOB MS: waits until daemon a has not heard one of the job's ranks for so long
silent() {
	local ms
	for _ in $(seq 5000); do
		for ms in $(ctl job show "$1" | sed -n 's/.*"silent_seconds": \([0-9.]*\).*/\1/p' | awk '{ printf "%d\n", $1 * 1000 }'); do
			((ms < $2)) || return 0
		done
	done
	fail "a rank of $1 is silent for $2 ms"
}
lm() { # JOB RANK ENDPOINTS OPTIONS: zerod-lm on host w RANK; its lines go to JOB.RANK, its pid to $started
	ip netns exec "$me-w$2" "$bin/zerod-lm" train --text "$text" "${small[@]}" --endpoints "$3" --job "$1" --rank "$2" --world 2 --json "${@:4}" \
		>"$work/$1.$2" 2>"$work/$1.$2.err" &
	started=$!
	pids+=($!)
}
reference() { "$bin/zerod-lm" reference --text "$text" "${small[@]}" --world 2 --json | sha; }
sha() { sed -n 's/.*"sha256":"\([0-9a-f]*\)".*/\1/p'; }
same() { # NAME JOB: both ranks of zerod-lm, of which rank 0 was started last, end with the bits of the reference
	local rc=0
	wait "$started" && wait "$other" || rc=$?
	((rc == 0)) || cat "$work/$2".*.err
	equal "$1" "$want" "$(sha <"$work/$2.0")"
}

# ---- the hosts
why=
if ((EUID != 0)); then why="needs root"
elif ! command -v ip >/dev/null; then why="ip is not installed (package iproute2)"
elif ! plug_all 2>"$work/why"; then
	why="network namespaces cannot be made here: $(tail -n 1 "$work/why")"
fi
if [[ $why ]]; then
	echo "skip network: $why"
	exit 0
fi
for host in a b; do
	on "$host"
	address=address_$host
	v6=
	# Without waiting for other hosts to object to the address.
	[[ $host == a ]] && ip -n "$me-a" addr add fd77::1/64 dev eth0 nodad 2>/dev/null && v6=,fd77::1
	daemon "$host" --set listen.address="${!address}$v6" --set listen.insecure=I-accept-plaintext --set timeouts.peer=2s
done
both=$address_a:$port_a,$address_b:$port_b

# ---- addresses
small=(--layers 2 --dim 64 --heads 2 --context 32 --batch 2 --steps 6 --seed 5)
want=$(reference)
lm v4 1 "$both"
other=$started
lm v4 0 "$both"
same "IPv4" v4
if ip -n "$me-w0" addr add fd77::10/64 dev eth0 nodad 2>/dev/null && ip -n "$me-w1" addr add fd77::11/64 dev eth0 nodad 2>/dev/null; then
	lm v6 1 "[fd77::1]:$port_a,$address_b:$port_b"
	other=$started
	lm v6 0 "[fd77::1]:$port_a,$address_b:$port_b"
	same "one daemon by IPv6, one by IPv4" v6
else
	echo "skip IPv6: this kernel has none"
fi
if mkdir -p /etc/netns/"$me"-w{0,1} 2>/dev/null; then
	for host in w0 w1; do printf '%s\n' "$address_a shard-a" "$address_b shard-b" >"/etc/netns/$me-$host/hosts"; done
	lm names 1 "shard-a:$port_a,shard-b:$port_b"
	other=$started
	lm names 0 "shard-a:$port_a,shard-b:$port_b"
	same "names" names
else
	echo "skip names: /etc/netns cannot be written"
fi

# ---- a daemon's cable is out for a moment, and an interface gets a small MTU
small=(--layers 2 --dim 64 --heads 2 --context 32 --batch 2 --steps 200 --seed 5)
want=$(reference)
lm moment 1 "$both" --lease 8
other=$started
lm moment 0 "$both" --lease 8
await "$work/moment.0" '"round":10,'
pull a
silent moment 1000
put a
ip -n "$me-w1" link set eth0 mtu 1280
same "a daemon is cut off for a second: the undisturbed bits, without a restart" moment

# ---- a worker's way is cut in the middle of its pushes, for two thirds of the lease: TCP itself would try again only when that is out
model=(endpoints="$both" units=8 numel=20000 rounds=3 world=2)
on w1
steady calm 1 "${model[@]}"
on w0
steady calm 0 "${model[@]}"
wait "$started"
want=$(digest_in calm.0)
on w1
steady away 1 "${model[@]}" lease=8000
other=$started
on w0
steady_held away 0 "${model[@]}" lease=8000 pause=push
cut w0
silent away 5300
mend w0
go_on away.0
wait "$other"
equal "a worker is cut off for two thirds of the lease: the other ends well" 0 "$?"
equal "and it, with the undisturbed bits" "$want" "$(digest_in away.0)"
check "and nothing was computed again" bash -c "! grep -h . '$work'/away.*.err"

# ---- for ever: no packet of a host comes any more, no RST, no FIN
on w1
steady gone 1 "${model[@]}" lease=1000
other=$started
on w0
steady_held gone 0 "${model[@]}" lease=1000 timeout=3000 pause=push
ip -n "$me-switch" link del dev w0
wait "$other"
equal "a host vanishes: the other worker's launch is over" 75 "$?"
check "with its rank and the lease" grep -Eq 'rank 0 was last heard [0-9]+ ms ago, the lease is 1000 ms' "$work/gone.1.err"
go_on gone.0
wait "$started"
check "who was on it is told that daemons are out of reach" grep -Eq "timed out: .*$address_a:$port_a.*(unreachable|no connection within|does not answer)" "$work/gone.0.err"
for _ in $(seq 2000); do connections=$(ctl status | sed -n 's/.*"connections": \([0-9]*\).*/\1/p'); ((connections > 1)) || break; done
equal "and its connections are gone" 1 "$connections"
plug w0
on w1
steady gone 1 "${model[@]}" lease=1000 epoch=2
on w0
steady gone 0 "${model[@]}" lease=1000 epoch=2
wait "$started" || cat "$work"/gone.*.err
equal "a higher epoch from another host with its address ends with the undisturbed bits" "$want" "$(digest_in gone.0)"

# ---- a slow way: one frame takes longer than the lease
model=(endpoints="$address_a:$port_a" units=1 numel=65536 rounds=1 world=2 timeout=60000)
slow() { # JOB OPTIONS: both workers; leaves the exit status of rank 0
	on w1
	steady "$1" 1 "${model[@]}" "${@:2}"
	on w0
	steady "$1" 0 "${model[@]}" "${@:2}"
	wait "$started"
}
slow fast
want=$(digest_in fast.0)
if tc -n "$me-w0" qdisc add dev eth0 root tbf rate 1mbit burst 16kb limit 128kb 2>"$work/why" &&
	tc -n "$me-switch" qdisc add dev w0 root tbf rate 1mbit burst 16kb limit 128kb 2>"$work/why"; then
	slow slow lease=1500
	equal "1 Mbit/s: a frame of 2 s and a lease of 1.5 s" "$want" "$(digest_in slow.0)"
	check "nobody was blamed" bash -c "! grep -h . '$work'/slow.*.err"
else
	echo "skip slow links: tc cannot limit a rate here: $(tail -n 1 "$work/why")"
fi
exit 0
