#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What deploy/ hands to the service manager: units verify and stay within their exposure, users and folders parse, the sample configuration
# is the table's, and an installed tree is complete.
source "$(dirname "$0")/lib.sh"

check "zerod@.service runs what is installed" grep -qx 'ExecStart=/usr/bin/zerod -c /etc/zerod/%i.conf' "$root/deploy/systemd/zerod@.service"
equal "the sample configuration is the table's" "$("$bin/zerod" --print-sample-config | sha256sum)" "$(sha256sum <"$root/deploy/zerod.conf")"
check "zerod takes the sample configuration" "$bin/zerod" -c "$root/deploy/zerod.conf" --check-config

tree=$work/tree
check "cmake --install" env DESTDIR="$tree" cmake --install "$build" --prefix /usr
for file in usr/bin/zerod usr/lib/systemd/system/zerod@.service usr/lib/systemd/system/zerod.slice usr/lib/sysusers.d/zerod.conf \
	usr/lib/tmpfiles.d/zerod.conf; do
	check "installed: $file" test -s "$tree/$file"
done
# The first command that fails ends a reload, so that a mistake is the administrator's to see and never reaches the daemon.
equal "a reload checks the configuration, then tells the daemon" \
	"ExecReload=/usr/bin/zerod -c /etc/zerod/%i.conf --check-config ExecReload=/bin/kill -HUP \$MAINPID" \
	"$(grep '^ExecReload=' "$tree/usr/lib/systemd/system/zerod@.service" | paste -sd' ')"
equal "the unit starts what is installed with it" "ExecStart=/usr/bin/zerod -c /etc/zerod/%i.conf" \
	"$(grep '^ExecStart=' "$tree/usr/lib/systemd/system/zerod@.service")"
check "cmake --install elsewhere" env DESTDIR="$work/other" cmake --install "$build" --prefix /opt/z
equal "and there, too" "ExecStart=/opt/z/bin/zerod -c /etc/zerod/%i.conf" \
	"$(grep '^ExecStart=' "$work/other/opt/z/lib/systemd/system/zerod@.service")"
equal "and checks with it" "ExecReload=/opt/z/bin/zerod -c /etc/zerod/%i.conf --check-config" \
	"$(grep '^ExecReload=.*zerod' "$work/other/opt/z/lib/systemd/system/zerod@.service")"

if ! command -v systemd-analyze >/dev/null; then
	echo "skip units: systemd-analyze is not installed (package systemd)"
	exit 0
fi
# Verified with the daemon that was built in place of the one that is not installed here.
mkdir "$work/units"
sed "s|/usr/bin/zerod|$bin/zerod|" "$root/deploy/systemd/zerod@.service" >"$work/units/zerod@.service"
cp "$root/deploy/systemd/zerod.slice" "$work/units"
verify() {
	local out
	out=$(SYSTEMD_UNIT_PATH="$work/units:" systemd-analyze verify --man=no "$work/units/zerod@.service" "$work/units/zerod.slice" 2>&1) || {
		printf '%s\n' "$out"
		return 1
	}
	# It also warns without failing.
	[[ -z $out ]] || { printf '%s\n' "$out"; return 1; }
}
check "systemd-analyze verify" verify
check "exposure at most 1.2" systemd-analyze security --offline=true --threshold=12 --no-pager "$work/units/zerod@.service"
if systemd-sysusers --help 2>/dev/null | grep -q -- --dry-run; then
	check "sysusers.d parses" systemd-sysusers --dry-run --root="$tree" "$root/deploy/sysusers.d/zerod.conf"
else
	mkdir -p "$work/system/etc"
	check "sysusers.d creates the user" systemd-sysusers --root="$work/system" "$root/deploy/sysusers.d/zerod.conf"
	check "the user is there" grep -q '^zerod:.*:/var/lib/zerod:' "$work/system/etc/passwd"
fi
exit 0
