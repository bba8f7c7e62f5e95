#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Seeded faults: each file in mutants/ changes one place of the product; the run that it names must fail, in the words that it expects.  A mutant whose
# place is not in the source any more, or not once, is a failure too: move it with the code.
#
#   tests/sim/mutants.sh BUILD-DIR [NAME...]
#
# A mutant file: what it breaks, in a line; "file:", "expect:" (extended regular expression on the output), "run:" ("seeds FIRST COUNT" of the simulated
# world, "scenario TEST" of test_sim, "program TEST-PROGRAM"); then the text that is searched and the text that takes its place.
# Snapshots ("a slot reused before it is stable") have no mutant: no store writes any yet.
# Only the changed file is compiled anew; everything else is linked as the build folder has it.
set -uo pipefail
build=$(cd "${1:?usage: $0 BUILD-DIR [NAME...]}" && pwd)
shift
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
here=$root/tests/sim/mutants
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc=${CC:-cc}
flags=(-std=gnu11 -O1 -D_GNU_SOURCE -DZD_RELEASE='"mutant"' -ffp-contract=off -I"$root" -I"$build/proto" -w)
limit=100 # seconds for one run; a mutant that hangs is caught

objects() { find "$build" -path "*/CMakeFiles/$1.dir/*.o" | sort; }

# The program NAME with one object in place of the library's.
link() { # object program output
	local libs=() lib
	for lib in libzd_test_core libzd_test_client libzd_sim libzd_core libzd_session libzd_kernel libzd_decide libzd_wire; do
		[[ -f $build/lib/$lib.a ]] && libs+=("$build/lib/$lib.a")
	done
	mapfile -t own < <(objects "$2")
	((${#own[@]})) || { echo "no objects of $2 in $build"; return 1; }
	"$cc" -o "$3" "$1" "${own[@]}" -Wl,--start-group "${libs[@]}" -Wl,--end-group -lcmocka -lprotobuf-c -lisal -lm
}

one() { # name: prints "ok NAME" or "not ok NAME" and why
	local name=$1 text file expect run old new source mutated dir=$work/$1 rc=0 log program
	mkdir -p "$dir"
	text=$(<"$here/$name.mutant")
	file=$(sed -n 's/^file: //p' <<<"$text")
	expect=$(sed -n 's/^expect: //p' <<<"$text")
	run=$(sed -n 's/^run: //p' <<<"$text")
	old=${text#*$'\n--- old\n'}
	old=${old%%$'--- new\n'*}
	new=${text##*$'--- new\n'}
	new=${new%%--- end*}
	source=$(<"$root/$file")$'\n'
	mutated=${source/"$old"/"$new"}
	if [[ $mutated == "$source" || ${source/"$old"/} == *"$old"* ]]; then
		echo "not ok mutant $name: its place is not in $file, or not once"
		return
	fi
	printf '%s' "$mutated" >"$dir/$(basename "$file")"
	read -r kind first rest <<<"$run"
	case $kind in
	seeds) program=sim ;;
	scenario) program=test_sim ;;
	program) program=$first ;;
	esac
	if ! log=$("$cc" "${flags[@]}" -I"$root/$(dirname "$file")" -c "$dir/$(basename "$file")" -o "$dir/mutant.o" 2>&1 && link "$dir/mutant.o" "$program" "$dir/run" 2>&1); then
		echo "not ok mutant $name: it does not build"
		sed 's/^/    /' <<<"$log"
		return
	fi
	case $kind in
	seeds) log=$(cd "$root" && timeout "$limit" "$dir/run" --seed "$first" --runs "$rest" 2>&1) || rc=$? ;;
	scenario) log=$(cd "$root" && timeout "$limit" "$dir/run" "$first" 2>&1) || rc=$? ;;
	program) log=$(cd "$root" && timeout "$limit" "$dir/run" 2>&1) || rc=$? ;;
	esac
	if ((rc == 0)); then
		echo "not ok mutant $name: nothing failed ($(head -n 1 <<<"$text"))"
	elif ((rc != 124)) && ! grep -Eq -- "$expect" <<<"$log"; then
		echo "not ok mutant $name: caught, but not by /$expect/"
		grep -vE '^( *replay|\[)' <<<"$log" | tail -n 4 | cut -c1-300 | sed 's/^/    /'
	else
		echo "ok mutant $name: $(grep -Em1 -- "$expect" <<<"$log" | cut -c1-150)"
	fi
}

names=("$@")
if ((${#names[@]} == 0)); then
	for path in "$here"/*.mutant; do names+=("$(basename "$path" .mutant)"); done
fi
# Two at a time: the machine that runs the tests has no more.
for ((i = 0; i < ${#names[@]}; i += 2)); do
	for name in "${names[@]:i:2}"; do
		one "$name" >"$work/$name.out" 2>&1 &
	done
	wait
	for name in "${names[@]:i:2}"; do cat "$work/$name.out"; done
done | tee "$work/all"
! grep -q '^not ok' "$work/all"
