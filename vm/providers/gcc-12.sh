# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Modules for the kernels that this machine's gcc-12 compiles.

# build_module KERNEL-DIR OUT FOLDER MAKE-ARGUMENTS...
build_module() {
	local kernel=$1 out=$2 folder=$3
	shift 3
	make --no-print-directory -C "$kernel/build" M="$out/$folder" CC=gcc-12 "$@"
}
