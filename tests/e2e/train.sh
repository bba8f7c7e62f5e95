#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Same bits: the final weights do not depend on stage, daemons, lanes, instruction set or codec's path, and equal the run without daemons.
source "$(dirname "$0")/lib.sh"
text=$work/text
for i in $(seq 400); do echo "line $i of a text that a small model can learn; $((i * i)) is $i squared."; done >"$text"
# One unit is larger than a piece (two lanes share it), the others are whole.
small=(--text "$text" --layers 2 --dim 64 --heads 2 --context 32 --batch 2 --steps 6 --seed 5)
n=0

digest_of() { # FILE: the digest in a JSON result
	sed -n 's/.*"sha256":"\([0-9a-f]*\)".*/\1/p' "$1"
}
field() { # FILE NAME: a number in the last line
	tail -n 1 "$1" | sed -n "s/.*\"$2\":\([0-9.e+-]*\).*/\1/p"
}
reference() { # options: prints the digest
	"$bin/zerod-lm" reference "${small[@]}" --json "$@" >"$work/reference.json" 2>"$work/reference.err" || cat "$work/reference.err" >&2
	digest_of "$work/reference.json"
}
# launch ENDPOINTS WORLD options: all ranks of job-$n as processes; leaves rank0.json; the digest in $digest
launch() {
	local endpoints=$1 world=$2 rank rcs=0 started=()
	shift 2
	for ((rank = world - 1; rank >= 0; rank--)); do
		"$bin/zerod-lm" train "${small[@]}" --endpoints "$endpoints" --job "job-$n" --rank "$rank" --world "$world" --json "$@" \
			>"$work/rank$rank.json" 2>"$work/rank$rank.err" &
		started+=($!)
		pids+=($!)
	done
	for pid in "${started[@]}"; do wait "$pid" || rcs=1; done
	((rcs == 0)) || cat "$work"/rank*.err >&2
	digest=$(digest_of "$work/rank0.json")
	return "$rcs"
}
train() { # the same as a job of its own
	local rc=0
	((n++)) || :
	launch "$@" || rc=$?
	"$bin/zeroctl" --endpoints "$1" --yes job drop "job-$n" >/dev/null || :
	return "$rc"
}

daemon one
daemon two
daemon three --set lanes.count=3
ZEROD_KERNELS=scalar daemon scalar
one=127.0.0.1:$port_one two=127.0.0.1:$port_two three=127.0.0.1:$port_three scalar=127.0.0.1:$port_scalar

want=$(reference --world 2)
check "the reference gives a digest" test -n "$want"
equal "the reference is the same with scalar kernels" "$want" "$(reference --world 2 --kernels scalar)"
for stage in 0 1 2 3; do
	train "$one" 2 --stage "$stage"
	equal "stage $stage, one lane" "$want" "$digest"
done
train "$one" 2 --stage 3 --reshard-after-forward no
equal "stage 3, weights kept after forward" "$want" "$digest"
train "$one,$two" 2
equal "two daemons" "$want" "$digest"
train "$three" 2
equal "one daemon, three lanes" "$want" "$digest"
train "$two,$three,$one" 2
equal "three daemons, five lanes" "$want" "$digest"
train "$scalar" 2
equal "scalar kernels in the daemon" "$want" "$digest"
train "$one" 2 --prefetch 0
equal "no prefetch" "$want" "$digest"

for accumulate in "3 2" "2 1" "4 3"; do
	read -r micro world <<<"$accumulate"
	want=$(reference --world "$world" --micro-batches "$micro")
	for stage in 0 1 2 3; do
		train "$one,$three" "$world" --stage "$stage" --micro-batches "$micro"
		equal "$micro micro-batches, $world workers, stage $stage" "$want" "$digest"
	done
done
equal "accumulating in the worker is what the reference says it is" "$(reference --world 2 --micro-batches 3 --accumulate local)" \
	"$(train "$one" 2 --stage 1 --micro-batches 3 --accumulate local && echo "$digest")"
want=$(reference --world 3 --grad-codec fp32)
train "$one,$two" 3 --grad-codec fp32
equal "fp32 gradients, three workers" "$want" "$digest"
want=$(reference --world 1 --optimizer adam --max-norm 0.05)
train "$two" 1 --optimizer adam --max-norm 0.05
equal "Adam with L2, always clipped" "$want" "$digest"

# ---- the number of workers changes from launch to launch
resized() { # ENDPOINTS: the digest after launches of 2, 3 and 1 workers
	((n++)) || :
	launch "$1" 2 --epoch 1 --steps 2 && launch "$1" 3 --epoch 2 --steps 4 && launch "$1" 1 --epoch 3 --steps 6
}
resized "$one"
want=$digest
check "launches of 2, 3 and 1 workers go on from each other" test "$(field "$work/rank0.json" rounds)" -eq 6
resized "$scalar,$three"
equal "with the same bits in another layout" "$want" "$digest"

# ---- memory of a worker: never more gathered weights than the limiter's bound
train "$one" 2 --stage 3
max=$(field "$work/rank0.json" resident_bytes_max) limit=$(field "$work/rank0.json" resident_bytes_limit)
check "stage 3 holds at most the bound ($max of $limit bytes)" test "$max" -le "$limit" -a "$max" -gt 0
params=$(field "$work/rank0.json" params)
check "the bound is less than the model ($limit of $((2 * params)) bytes)" test "$limit" -lt $((2 * params))

# ---- bytes: what the planner says
pushed=$(field "$work/rank0.json" pushed_bytes)
# Initial weights are fp32, once, from rank 0.
equal "rank 0 pushes 2 bytes per parameter and step, and loads 4 once" "$((6 * 2 * params + 4 * params))" "$pushed"

# ---- a text at the end: all weights are needed for each of its bytes
model=$((2 * params)) bytes=40
largest=$((2 * (12 * 64 * 64 + 13 * 64))) # a block
sample() { # ENDPOINTS options: leaves the sample's figures
	train "$1" 1 --sample "$bytes" "${@:2}"
	fetched=$(field "$work/rank0.json" sample_fetched_bytes) beyond=$(field "$work/rank0.json" sample_beyond_bytes)
	max=$(field "$work/rank0.json" resident_bytes_max) limit=$(field "$work/rank0.json" resident_bytes_limit)
	text_of=$(sed -n 's/.*"sample":"\(.*\)","sha256".*/\1/p' "$work/rank0.json")
}
sample "$one,$three"
want=$text_of
# Some of a unit may be on its way from before.
check "it fetches the weights once ($fetched of $model bytes)" test "$fetched" -ge $((model - largest)) -a "$fetched" -le $((model + largest))
equal "all of them are held, and said to be" "$model" "$beyond"
check "they count as resident ($max bytes)" test "$max" -ge "$model" -a "$limit" -lt "$model"
sample "$one,$three" --sample-weights fetch
equal "fetched for each byte, it is the same text" "$want" "$text_of"
check "and costs the model for each byte ($fetched bytes)" test "$fetched" -ge $(((bytes - 1) * model)) -a "$fetched" -le $(((bytes + 1) * model))
check "but nothing beyond the bound ($max of $limit bytes)" test "$beyond" -eq 0 -a "$max" -le "$limit"
sample "$one,$three" --gather-bytes "$model"
equal "where the bound allows it, it is the same text" "$want" "$text_of"
check "fetched once within the bound ($fetched bytes, $max of $limit)" test "$fetched" -le "$model" -a "$beyond" -eq 0 -a "$max" -le "$limit"
for options in "--stage 3 --reshard-after-forward no" "--stage 2" "--stage 0"; do
	sample "$one,$three" $options
	equal "$options: the same text" "$want" "$text_of"
	check "$options: at most one more fetch ($fetched bytes)" test "$fetched" -le "$model" -a "$beyond" -eq 0
done
expect "an unknown way to hold weights" 2 '--sample-weights: expected one of fetch, hold; found .all' \
	"$bin/zerod-lm" train "${small[@]}" --endpoints "$one" --sample-weights all
exit 0
