# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# To be sourced by the scripts of this folder, on the host: programs, disks and the VM.

# shellcheck source=vm/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../vm/lib.sh"

kernel=${KERNEL:-6.12}
work=$BUILD/crash
programs=$work/programs
bug= # of the daemon, if it is built with its feature seeded

# build_crash_programs FOLDER [CARGO-ARGUMENT...]: builds what the guest runs, and copies it to this folder, so that another build does not
# replace it meanwhile.
build_crash_programs() {
	local program
	(cd "$TREE" && cargo build --locked --quiet -p sluice-crash -p sluiced "${@:2}")
	mkdir -p "$1"
	for program in sluice-crash sluiced; do
		# The guest reads it over 9P.
		strip --strip-debug -o "$1/$program.$$" "${CARGO_TARGET_DIR:-$BUILD/cargo}/debug/$program"
		mv "$1/$program.$$" "$1/$program"
	done
}

# prepare NAME: builds everything, and sets folder to an empty one of this name.
prepare() {
	module=$("$TREE/vm/build-module" "$kernel")
	build_crash_programs "$programs"
	new_folder "$1"
}

new_folder() {
	folder=$work/$1
	rm -rf "$folder"
	mkdir -p "$folder"
}

# make_disk FILE: ext4 that is complete from the beginning; one that is initialized later writes while it is mounted. Without checksums of
# metadata: ext4 also writes its superblock beside the journal, and such a write has been seen with the checksum of other content, after
# which e2fsck finds no file system. Whether the store's data is there does not depend on them.
make_disk() {
	rm -f "$1"
	truncate -s 32M "$1"
	mkfs.ext4 -q -F -O ^metadata_csum -b 4096 -J size=4 -N 64 -m 0 -E lazy_itable_init=0,lazy_journal_init=0 "$1"
}

# set_command SECONDS TEST DISK... [-- ARGUMENT...]: sets command to one that runs a test of tests/crash/guest in a VM. A DISK is as for
# vm/run.
set_command() {
	local limit=$1 test=$2 disks=()
	shift 2
	while (($#)) && [[ $1 != -- ]]; do
		disks+=(--disk "$1")
		shift
	done
	command=("$TREE/vm/run" --kernel "$kernel" --timeout "$limit" --memory 1G "${disks[@]}" -- env "SLUICED_BUG=$bug"
		"$TREE/tests/crash/guest" "$test" "$module" "$programs" "$folder" "${@:2}")
}

# in_guest SECONDS TEST DISK... [-- ARGUMENT...]: runs it.
in_guest() {
	local command
	set_command "$@"
	"${command[@]}" </dev/null
}

# cut_power SECONDS MOUNT-SECONDS: writes to maps on a disk whose writes are logged. MOUNT-SECONDS long, the guest replays states.
cut_power() {
	make_disk "$folder/base"
	cp --sparse=always "$folder/base" "$folder/disk"
	rm -f "$folder/log"
	truncate -s 4G "$folder/log"
	in_guest $((100 + $1 + $2)) power-cuts "disk:$folder/disk" "log:$folder/log" -- "$1" "$2"
}

# replay [ARGUMENT...]: replays states of the disk; the status is that of sluice-crash.
replay() {
	"$programs/sluice-crash" replay --base "$folder/base" --log "$folder/log" --keep "$folder/failed" \
		--map "always=$folder/always.history" --map "interval=$folder/interval.history" --churned churn "$@"
}
