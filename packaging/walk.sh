# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=sh
# What the scripts share that work inside an emulated machine (packaging/machine.sh).
state=/sys/kernel/sched_ext/state

say() { echo "walk: $*"; }
# Says how it was, and ends the machine.
end() {
	say "$*"
	sync
	echo b >/proc/sysrq-trigger
	sleep 60
}
# expect WHAT COMMAND...: fails unless the command's output is WHAT.
expect() {
	want=$1
	shift
	got=$("$@" 2>&1)
	[ "$got" = "$want" ] || end "$*: $got, and should be $want"
}
# until_is TRIES WHAT COMMAND...: waits until the command's output is WHAT, looking so often, five times a second.
until_is() {
	left=$1 want=$2
	shift 2
	while [ "$("$@")" != "$want" ]; do
		left=$((left - 1))
		[ $left -gt 0 ] || return 1
		sleep 0.2
	done
}
# Whoever ran has been killed.
until_disabled() { until_is 150 disabled cat $state || end "the kernel has not taken over"; }
# until_enabled WHO: waits until a scheduler of ours is loaded by the service.
until_enabled() {
	until_is 600 enabled cat $state || end "$1 does not schedule: $(journalctl -n 5 --no-pager -o cat -u "$1" _TRANSPORT=stdout)"
	expect active systemctl is-active "$1"
	say "$1 schedules: $(cat /sys/kernel/sched_ext/root/ops)"
}
