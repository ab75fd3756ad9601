# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# To be sourced by the scripts of this folder, on the host: programs, disks and the VM.

# shellcheck source=vm/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../vm/lib.sh"

KERNEL=${KERNEL:-6.12}
work=$BUILD/crash
crash=$work/programs/sluice-crash
guest=$TREE/tests/crash/guest

# build_programs [FOLDER [CARGO-ARGUMENT...]]: builds what the guest runs, and copies it to this folder of build/crash, so that another
# build does not replace it meanwhile.
build_programs() {
	local folder=$work/${1:-programs} program
	(cd "$TREE" && cargo build --profile suite --locked --quiet -p sluice-crash -p sluiced "${@:2}") || return
	mkdir -p "$folder"
	for program in sluice-crash sluiced; do
		# Starting a program in the guest takes as long as reading it does.
		strip --strip-debug -o "$folder/$program.new" "$BUILD/cargo/suite/$program" || return
		mv "$folder/$program.new" "$folder/$program" || return
	done
}

# make_file_system FILE SIZE: ext4, complete from the beginning: a file system that is initialized later writes while it is mounted.
make_file_system() {
	rm -f "$1"
	truncate -s "$2" "$1"
	mkfs.ext4 -q -F -b 4096 -J size=4 -N 64 -m 0 -E lazy_itable_init=0,lazy_journal_init=0 "$1"
}

# in_guest SECONDS [VM-OPTION...] -- ARGUMENT...: runs the script of the guest with these arguments.
in_guest() {
	local limit=$1 options=()
	shift
	while [[ $1 != -- ]]; do
		options+=("$1")
		shift
	done
	shift
	"$TREE/vm/run" --kernel "$KERNEL" --timeout "$limit" --memory 1G "${options[@]}" -- "$guest" "$@"
}

# new_folder NAME: an empty folder in build/crash, in $folder.
new_folder() {
	folder=$work/$1
	rm -rf "$folder"
	mkdir -p "$folder"
}
