#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The real launchers, where they are installed: two workers that know each other, launches told apart, a worker killed in between.  What they set in
# the environment is written down in tests/unit/test_lm_launch.c, which needs none of them.
source "$(dirname "$0")/lib.sh"
text=$work/text
for i in $(seq 400); do echo "line $i of a text that a small model can learn; $((i * i)) is $i squared."; done >"$text"
small=(--text "$text" --layers 2 --dim 32 --heads 2 --context 32 --batch 2 --steps 12 --seed 7)
daemon one --set lanes.count=2
want=$("$bin/zerod-lm" reference "${small[@]}" --world 2 --json | sed -n 's/.*"sha256":"\([0-9a-f]*\)".*/\1/p')
export TMPDIR=$work OMP_NUM_THREADS=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1

# worker JOB [OPTIONS]: rank 1 ends after three rounds, once, if there is a file JOB.kill.  It is killed with its shell, which is what the launcher knows.
cat >"$work/worker" <<-SHELL
	#!/usr/bin/env bash
	job=\$1
	shift
	train=("$bin/zerod-lm" train ${small[*]@Q} --endpoints 127.0.0.1:$port_one --result "$work/\$job.sha256" --job "\$job" "\$@")
	if [[ \${RANK-}\${OMPI_COMM_WORLD_RANK-}\${PMI_RANK-} == 1 ]] && rm "$work/\$job.kill" 2>/dev/null; then
		exec {lines}< <(exec "\${train[@]}" --json)
		for _ in 1 2 3; do read -r _ <&"\$lines"; done
		kill -KILL \$! \$\$
	fi
	exec "\${train[@]}"
SHELL
chmod +x "$work/worker"
launch() { # JOB [OPTIONS]: by the launcher in $launcher, to its end
	rm -f "$work/$1.sha256"
	timeout -k 5 120 "${launcher[@]}" "$work/worker" "$@" </dev/null
}
digest_of() { grep -oE '[0-9a-f]{64}' "$work/$1.sha256"; }
epoch_of() { "$bin/zeroctl" --endpoints "127.0.0.1:$port_one" -o json job show "$1" | sed -n 's/.*"epoch": *\([0-9]*\).*/\1/p' | head -n 1; }

# Launchers that end with their first worker: whoever launches again raises the epoch.
by_hand() { # NAME PATTERN: what a second launch with the same epoch is told
	: >"$work/$1.kill"
	check "$1: a rank is killed, and so the launch" bash -c '! "$@"' - timeout -k 5 120 "${launcher[@]}" "$work/worker" "$1"
	check "$1: in the middle" test ! -e "$work/$1.kill" -a ! -s "$work/$1.sha256"
	expect "$1: launched again with the same epoch" 1 "$2" launch "$1"
	check "$1: and with a higher one" launch "$1" --epoch 2
	equal "$1: ends with the undisturbed bits" "$want" "$(digest_of "$1")"
}

mpirun=$(command -v mpirun.openmpi || command -v mpirun || :)
if [[ -n $mpirun && $("$mpirun" --version 2>&1) =~ Open\ MPI|OpenRTE ]]; then
	launcher=("$mpirun" --map-by :OVERSUBSCRIBE -np 2)
	by_hand openmpi 'epoch 1 belongs to launch [0-9a-f]*, rank [01] comes from launch'
else
	echo "skip mpirun: Open MPI (package openmpi-bin) is not installed"
fi

if command -v mpiexec.hydra >/dev/null; then
	launcher=(mpiexec.hydra -n 2)
	by_hand hydra 'rank [01] of epoch 1 is process'
else
	echo "skip mpiexec.hydra: MPICH (package mpich) is not installed"
fi

if command -v torchrun >/dev/null; then
	launcher=(torchrun --no-python --nproc-per-node 2 --max-restarts 3)
	for epoch in 1 5; do
		: >"$work/torchrun-$epoch.kill"
		check "torchrun: starts again what was killed" launch "torchrun-$epoch" --epoch "$epoch"
		check "torchrun: in the middle" test ! -e "$work/torchrun-$epoch.kill"
		equal "torchrun: with a higher epoch than $epoch" $((epoch + 1)) "$(epoch_of "torchrun-$epoch")"
		equal "torchrun: ends with the undisturbed bits" "$want" "$(digest_of "torchrun-$epoch")"
	done
	launcher=(torchrun --no-python --nproc-per-node 2)
	expect "torchrun: the next launch is told apart" 1 'it must stop|belongs to launch' launch torchrun-1
	launcher+=(--rdzv-backend c10d)
	check "torchrun: c10d without an id" launch c10d
	expect "torchrun: the next launch of c10d is told apart" 1 'epoch 1 belongs to launch' launch c10d
else
	echo "skip torchrun: it is not on PATH (it comes with PyTorch)"
fi
exit 0
