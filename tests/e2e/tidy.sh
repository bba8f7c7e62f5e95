#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The rules of the code that a compiler does not check: sizes, link rules by symbol table, banned calls, licences, links in the documents.
source "$(dirname "$0")/lib.sh"
cd "$root" || exit 1

list() { git ls-files -co --exclude-standard -- "$@" | while read -r f; do [[ -f $f ]] && printf '%s\n' "$f"; done; }
mapfile -t sources < <(list '*.c' '*.h')
check "git lists the sources, which all else here is about" test "${#sources[@]}" -gt 100

# nothing NAME LINES: passes if LINES is empty
nothing() {
	if [[ -z $2 ]]; then pass "$1"; else fail "$1" "$2"; fi
}

nothing "files have at most 800 lines" "$(wc -l "${sources[@]}" | awk '$2 != "total" && $1 > 800')"
nothing "functions have at most 70 lines" "$(awk '
	FNR == 1 { open = 0 }
	/^\{/ { open = FNR; name = last }
	/^\}/ && open { if (FNR - open + 1 > 71) print FILENAME ":" open ": " FNR - open " lines: " name; open = 0 }
	/^[a-z].*\(/ { last = $0 }' "${sources[@]}")"
nothing "every source names its licence" "$(grep -L 'SPDX-License-Identifier: Apache-2.0' "${sources[@]}" $(list '*.sh' 'CMakeLists.txt' '*.cmake' '*.proto' '*.def'))"
nothing "no open ends" "$(grep -nE '\b(TODO|FIXME|XXX|HACK)\b' "${sources[@]}")"
nothing "no banned calls" "$(grep -nE '\b(sprintf|strcpy|strcat|strncpy|gets|atoi|atol|atof|strtok|rand|srand|alloca|vsprintf)\(' "${sources[@]}" | grep -vE '^[^:]*:[0-9]+:\s*(/?\*|//)')"
nothing "no shell out of the product" "$(grep -nE '\b(system|popen)\(' $(list 'proto/*.c' 'server/*.c' 'client/*.c'))"
nothing "no sleeps in tests" "$(grep -nE '\b(sleep|usleep|nanosleep|uv_sleep)\(' $(list 'tests/*.c') | grep -v '^tests/bench/'; grep -nE '^\s*sleep ' $(list 'tests/*.sh'))"
nothing "no absolute path of a machine" "$(grep -nE '(^|[^a-zA-Z$_}])/(home|root|work)/[a-z]' $(list) | grep -v '^tests/e2e/tidy.sh')"
nothing "no generated code is committed" "$(list | grep -E '\.pb-c\.[ch]$')"
nothing "the top level is the one agreed on" "$(list | sed 's,/.*,,' | sort -u |
	grep -vxE 'server|client|proto|deploy|tests|docs|CMakeLists.txt|CMakePresets.json|README.md|LICENSE|CHANGELOG.md|\..*')"

# ---- link rules: undefined symbols of our static libraries, less what they define themselves
undefined() { # archive...
	nm -u "$@" 2>/dev/null | awk '/ U / { print $2 }' | sed 's/@.*//' | sort -u |
		grep -vxFf <(nm --defined-only "$@" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort -u)
}
only() { # NAME PATTERN archive...
	local name=$1 pattern=$2
	shift 2
	[[ -f $1 ]] || { fail "$name" "no $1"; return; }
	nothing "$name" "$(undefined "$@" | grep -vxE "$pattern")"
}
libc='mem(cpy|move|set|cmp|chr)|str(len|cmp|ncmp|chr|nlen|spn|cspn|rchr)|v?snprintf|__stack_chk_fail|_GLOBAL_OFFSET_TABLE_|__(mem|str)[a-z]*_chk|__v?snprintf_chk'
lib() { find "$build" -name "$1" | head -n 1; }
only "core links proto's wire code and string functions only" "$libc|zd_[a-z0-9_]*" "$(lib libzd_core.a)"
nothing "core calls nothing of the other parts" "$(undefined "$(lib libzd_core.a)" | grep -E '^zd_' | grep -vxFf <(nm --defined-only "$(lib libzd_wire.a)" | awk 'NF == 3 { print $3 }'))"
only "wire code links string functions, ISA-L's CRC and protobuf-c only" "$libc|crc32_iscsi|__cpu_(model|indicator_init|features2)|zd_crc32c_plain|protobuf_c_[a-z_]*" "$(lib libzd_wire.a)"
only "kernels link libm only" "$libc|sqrtf?|powf?|fmaf?|zd_assert_failed|__cpu_(model|indicator_init|features2)|zd_[a-z0-9_]*" "$(lib libzd_kernel.a)"
nothing "the store knows no libuv" "$(undefined "$(lib libzd_store.a)" | grep -E '^uv_')"
shared=$(find "$build" -name 'libzerod.so' | head -n 1)
nothing "libzerod.so exports zerod_* only" "$(nm -D --defined-only "$shared" | awk '{ print $3 }' | grep -vE '^(zerod_[a-z_]*(@@.*)?|ZEROD_[0-9.]*)$')"
nothing "libzerod.a has zerod_* as its only global symbols" "$(nm --defined-only -g "$(lib libzerod.a)" | awk 'NF == 3 { print $3 }' | grep -vE '^zerod_')"
nothing "libzerod needs libprotobuf-c, libuv, OpenSSL, ISA-L and libc only" "$(readelf -d "$shared" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
	grep -vE '^lib(c|m|uv|protobuf-c|ssl|crypto|isal)\.so|^ld-linux')"

# ---- documents
broken=
for doc in $(list '*.md'); do
	while read -r target; do
		[[ -e $(dirname "$doc")/$target ]] || broken+="$doc: $target"$'\n'
	done < <(grep -oE '\]\([^)#: ]+[)#]' "$doc" | sed 's/^](//; s/[)#]$//')
done
nothing "links in the documents lead somewhere" "$broken"
exit 0
