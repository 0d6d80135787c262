# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# An emulated Debian 12 under systemd, for scripts that source this file: packaging/deb/try and packaging/libvirt/try. They
# unpack it, put into "$root" what they like, and boot it; a script of theirs, /opt/walk, works inside and ends it. Needs root,
# as a Debian is unpacked. Everything is in "$work", which goes when the script ends.
packaging=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root

# unpack_machine PACKAGES OPTION...: Debian 12 with systemd and these packages, separated by commas; options are mmdebstrap's.
unpack_machine() {
	local sources='' file
	for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
		[ -s "$file" ] && sources=$file && break
	done
	[ -n "$sources" ] || { echo "try: this system has no list of Debian's packages" >&2; exit 1; }
	echo "try: unpacking Debian 12"
	mmdebstrap --quiet --variant=minbase --include="systemd-sysv,libelf1,$1" --format=directory \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' "${@:2}" \
		bookworm "$root" "$sources" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
	rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*
	# Nothing of these is of use here, and an emulated CPU waits for it.
	mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer systemd-udevd.service \
		systemd-udev-trigger.service getty@tty1.service serial-getty@ttyS0.service
}

# mask UNIT...: these are not started in the machine.
mask() {
	local unit
	for unit in "$@"; do
		ln -sf /dev/null "$root/etc/systemd/system/$unit"
	done
}

# boot_machine WALK SECONDS KERNEL_IMAGE ARGUMENTS OPTION...: boots it with these arguments for the kernel and options for QEMU,
# runs the script WALK inside, waits so long for the end, and prints what the script has said.
boot_machine() {
	install -m755 "$1" "$root/opt/walk"
	install -m644 "$packaging/walk.sh" "$root/opt/walk.sh"
	install -m644 "$packaging/walk.service" "$root/etc/systemd/system/walk.service"
	install -d "$root/etc/systemd/system/multi-user.target.wants"
	ln -s /etc/systemd/system/walk.service "$root/etc/systemd/system/multi-user.target.wants/walk.service"
	ln -s /lib/systemd/systemd "$root/init"
	(cd "$root" && find . | LC_ALL=C sort | cpio --quiet -o -H newc >"$work/initramfs")

	echo "try: booting it"
	# One thread: with several, an emulated CPU may lose an interrupt.
	# In the foreground, or Ctrl-C would not reach it.
	timeout --foreground "$2" "${EMULATOR:-qemu-system-x86_64}" -nodefaults -display none -monitor none -no-reboot \
		-accel tcg,thread=single -cpu max "${@:5}" -kernel "$3" -initrd "$work/initramfs" \
		-serial "file:$work/console" \
		-append "console=ttyS0 quiet panic=-1 oops=panic mitigations=off random.trust_cpu=on cryptomgr.notests
			initcall_blacklist=load_system_certificate_list,jent_mod_init systemd.show_status=0 $4" || {
		tail -n 40 "$work/console" >&2
		echo "try: the machine did not end by itself" >&2
		exit 1
	}
	tr -d '\r' <"$work/console" | grep '^walk: ' || { tail -n 40 "$work/console" >&2; exit 1; }
	grep -q '^walk: all is well' "$work/console" || { tail -n 40 "$work/console" >&2; exit 1; }
}
