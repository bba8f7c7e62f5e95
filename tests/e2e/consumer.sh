#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# libzerod as others find it: installed elsewhere, and used from outside the tree through pkg-config and find_package, shared and static, in C and C++.
source "$(dirname "$0")/lib.sh"
prefix=$work/prefix
src=$work/src
mkdir -p "$src"

daemon one
cat >"$src/main.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <zerod.h>

int main(int argc, char **argv)
{
	struct zerod_unit unit = {"u", 1000, 0};
	struct zerod_options options;
	struct zerod_client *client;
	static uint16_t weights[1000];
	const uint16_t *got;
	char why[256];

	zerod_options_init(&options);
	options.endpoints = argc > 1 ? argv[1] : "";
	options.job = argc > 2 ? argv[2] : "job";
	if (zerod_new(&client, &options, &unit, 1, why, sizeof why))
		return fprintf(stderr, "%s\n", why), 2;
	weights[7] = 0x3f80;
	if (zerod_connect(client) || zerod_load(client, 0, ZEROD_BF16, weights) || zerod_seal(client) || zerod_gather(client, 0, &got))
		return fprintf(stderr, "%s\n", zerod_detail(client)), 1;
	printf("zerod %s: %x\n", zerod_version(), got[7]);
	zerod_free(client);
	return 0;
}
C
sed -e 's/#include <stdlib.h>/#include <cstdlib>/' "$src/main.c" >"$src/main.cc"

check "installs into a prefix" cmake --install "$build" --prefix "$prefix" --component development
check "and the library itself" cmake --install "$build" --prefix "$prefix" --component runtime
libdir=$(dirname "$(find "$prefix" -name libzerod.so.0.1 | head -n 1)")
export LD_LIBRARY_PATH=$libdir
pc=(pkg-config) # zerod.pc names the prefix of the installation, not of the build
export PKG_CONFIG_PATH=$libdir/pkgconfig
sanitize=$(sed -n 's/^ZD_SANITIZE:STRING=\(..*\)/-fsanitize=\1/p' "$build/CMakeCache.txt")

equal "pkg-config knows the version" "$("$bin/zerod" --version | cut -d' ' -f2)" "$("${pc[@]}" --modversion zerod)"
check "C, shared, pkg-config" cc -Wall -Wextra -Werror -Wstrict-prototypes -pedantic -std=c99 $sanitize -o "$work/shared" "$src/main.c" \
	$("${pc[@]}" --cflags --libs zerod)
expect "runs" 0 '^zerod [0-9.]+: 3f80$' "$work/shared" "127.0.0.1:$port_one" shared
check "needs libzerod.so.0.1" bash -c "readelf -d '$work/shared' | grep -q 'NEEDED.*libzerod\.so\.0\.1'"
check "C, static, pkg-config" cc $sanitize -o "$work/static" "$src/main.c" $("${pc[@]}" --cflags zerod) "$libdir/libzerod.a" \
	$("${pc[@]}" --static --libs zerod | sed 's/-lzerod\b//')
expect "runs" 0 '^zerod [0-9.]+: 3f80$' env -u LD_LIBRARY_PATH "$work/static" "127.0.0.1:$port_one" static
check "needs no libzerod.so" bash -c "! readelf -d '$work/static' | grep -q libzerod"
if command -v c++ >/dev/null; then
	check "C++" c++ -Wall -Wextra -Wshadow -Werror -pedantic $sanitize -o "$work/plusplus" "$src/main.cc" $("${pc[@]}" --cflags --libs zerod)
	expect "runs" 0 '^zerod [0-9.]+: 3f80$' "$work/plusplus" "127.0.0.1:$port_one" plusplus
else
	echo "skip C++: there is no c++"
fi

cat >"$src/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(consumer C)
find_package(zerod 0.1 REQUIRED)
add_executable(shared main.c)
target_link_libraries(shared zerod::zerod)
add_executable(static main.c)
target_link_libraries(static zerod::zerod_static)
CMAKE
check "find_package" cmake -S "$src" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_FLAGS="$sanitize"
check "C, both, find_package" cmake --build "$work/consumer"
expect "shared runs" 0 '^zerod [0-9.]+: 3f80$' "$work/consumer/shared" "127.0.0.1:$port_one" cmake-shared
expect "static runs" 0 '^zerod [0-9.]+: 3f80$' env -u LD_LIBRARY_PATH "$work/consumer/static" "127.0.0.1:$port_one" cmake-static
sed -i 's/find_package(zerod 0.1 /find_package(zerod 0.2 /' "$src/CMakeLists.txt"
check "find_package refuses another minor version" bash -c "! cmake -S '$src' -B '$work/consumer' -DCMAKE_PREFIX_PATH='$prefix'"

names() { nm "$@" | awk '$2 ~ /^[A-Z]$/ && $2 != "U" && $2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u; }
check "the shared library exports zerod_* only" bash -c "! nm -D --defined-only '$libdir/libzerod.so.0.1' | grep -vE ' (A ZEROD_0\.1|T zerod_[a-z_]+)(@.*)?$'"
equal "and the archive exports the same" "$(names -D --defined-only "$libdir/libzerod.so.0.1")" "$(names --defined-only "$libdir/libzerod.a")"
declared=$(sed -n 's/^ZEROD_API [^(]*\b\(zerod_[a-z_]*\)(.*/\1/p' "$prefix"/include/zerod.h | sort -u)
equal "which is what the header declares" "$declared" "$(names -D --defined-only "$libdir/libzerod.so.0.1")"
check "no system call that a library may not make" bash -c "! nm -D --undefined-only '$libdir/libzerod.so.0.1' | grep -E ' (exit|_exit|abort|signal|sigaction|printf|puts|stderr|perror)(@|\$)'"
expect "nobody there" 1 'connection refused; is zerod running there' timeout 60 "$work/static" 127.0.0.1:1
