# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The guest's set-up, shared by the session that runs a command and the one that gives a prompt.

# shellcheck source=vm/guest/cache-usr
. "$(dirname "${BASH_SOURCE[0]}")/cache-usr"

# A host without a kernel of its own has no /lib/modules, one with another kernel lacks the modules of this one, and one with the headers
# alone has a directory without modules. The tree is read-only here: put a writable layer over /usr/lib.
# vm/run left the directory's path in a file, if the kernel has modules.
provide_modules() {
	local run=$1 release
	read -r release </proc/sys/kernel/osrelease
	[[ -e /lib/modules/$release/modules.dep || ! -e $run/modules ]] && return
	mkdir -p /run/sluice/lib/modules /run/sluice/work
	ln -s "$(<"$run/modules")" "/run/sluice/lib/modules/$release"
	mount -t overlay -o lowerdir=/usr/lib,upperdir=/run/sluice/lib,workdir=/run/sluice/work overlay /usr/lib
}

# Gives each disk of vm/run its name in /dev, as udev would. vm/run left the names in a file.
name_disks() {
	local disk serial
	[[ -e $1/disks ]] || return 0
	# Built into some kernels.
	modprobe --quiet virtio_blk || true
	mkdir -p /dev/disk/by-id
	for disk in /sys/block/vd*; do
		# Without a final newline read fails, and yet reads.
		read -r serial <"$disk/serial" || true
		ln -sfn "/dev/${disk##*/}" "/dev/disk/by-id/virtio-$serial"
	done
	while read -r serial; do
		[[ -b /dev/disk/by-id/virtio-$serial ]] ||
			printf 'the guest has no disk %s; its kernel lacks virtio_blk\n' "$serial" >/dev/console
	done <"$1/disks"
}

# The programs of this project come on a disk, and are in memory where they are on this machine.
provide_programs() {
	local disk=/dev/disk/by-id/virtio-programs place
	[[ -e $disk ]] || return 0
	place=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)/build/programs
	mount -t tmpfs programs "$place"
	tar -xf "$disk" -b 512 -C "$place" || printf 'the guest cannot read the programs from %s\n' "$disk" >/dev/console
}

set_up_guest() {
	export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
	# Init passes on what the kernel did not understand of its command line.
	unset nr_open nohz_full rcu_nocbs SHLVL
	cache_usr "$1"
	provide_modules "$1"
	name_disks "$1"
	provide_programs
	echo '+cpu +memory +pids' >/sys/fs/cgroup/cgroup.subtree_control
}
