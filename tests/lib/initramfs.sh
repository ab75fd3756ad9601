# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# To be sourced: the archive of a system that a kernel unpacks into memory, which runs the suite (tests/guest/suite). This tree is at the path that
# it has here.

# add_suite ROOT STRIP TARGET FILE...: what the suite consists of. Its programs are those that cargo built in TARGET, without symbols. Each FILE, such as
# a module, is beside them.
add_suite() {
	local here=$1$TREE program
	mkdir -p "$here/build/programs" "$here/crates/sluice-testkit"
	(cd "$TREE" && cp -a --parents tests/guest crates/sluice-testkit/kernel-complaints.txt README.md "$here/")
	for program in sluice-tests sluice sluiced; do
		"$2" -o "$here/build/programs/$program" "$3/$program"
	done
	cp "${@:4}" "$here/build/programs/"
}

# write_init ROOT VARIABLE ARGUMENT...: what the kernel starts, with an assignment of the environment, such as A=b, and the arguments of the suite. The
# last line that it prints has the status.
write_init() {
	cat >"$1/init" <<-END
		#!/bin/bash
		export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root $2
		# Containers need a root that can be replaced, which the first one cannot.
		if [[ \$1 != again ]]; then
			mkdir -p /mnt
			mount -t tmpfs -o mode=755 root /mnt
			cp -ax /. /mnt
			exec switch_root /mnt /init again
		fi
		mkdir -p /proc /sys /dev /run /tmp
		mount -t proc proc /proc
		mount -t sysfs sysfs /sys
		mount -t devtmpfs dev /dev
		mkdir -p /dev/pts /dev/shm
		chmod 1777 /tmp
		mount -t devpts devpts /dev/pts
		mount -t tmpfs tmpfs /dev/shm
		mount -t cgroup2 cgroup2 /sys/fs/cgroup
		mount -t debugfs debugfs /sys/kernel/debug
		mount -t tracefs tracefs /sys/kernel/tracing
		ip link set lo up 2>/dev/null
		cd $(printf '%q' "$TREE")
		tests/guest/suite $(printf '%q ' "${@:3}") </dev/null
		echo "suite: status \$?"
		echo o >/proc/sysrq-trigger
		sleep 60
	END
	chmod +x "$1/init"
}

# pack ROOT FILE: packs the folder ROOT into FILE, a compressed cpio archive that the kernel accepts as an initramfs.
pack() {
	(cd "$1" && find . -print0 | cpio --null --create --format=newc --quiet) | gzip -1 >"$2"
}
