# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Modules for the kernels that this machine's gcc-12 compiles.

# build_module KERNEL-DIR OUT FOLDER MAKE-ARGUMENTS...
build_module() {
	local kernel=$1 out=$2 folder=$3 compiler=(CC=gcc-12)
	shift 3
	[[ $(<"$kernel/release") != *-arm64 ]] || compiler=(ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu- CC=aarch64-linux-gnu-gcc-12)
	make --no-print-directory -C "$kernel/build" M="$out/$folder" "${compiler[@]}" "$@"
}
