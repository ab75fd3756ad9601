# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# What every script of this project shares: messages and the places where things are kept.

TREE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck disable=SC2034 # used by the scripts that source this file
BUILD=$TREE/build
SLUICE_CACHE=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}
# A plain user's PATH on Debian lacks the folder that depmod and its like are in.
PATH=$PATH:/usr/sbin:/sbin

# Progress goes to stderr: stdout belongs to each script's result.
say() {
	printf 'sluice: %s\n' "$*" >&2
}

die() {
	printf 'sluice: %s\n' "$*" >&2
	exit 1
}

# What the build of a module for a kernel without symbols, to which gdb does not attach, is given: without debugging information it is compiled,
# and read by the guest, much sooner. With other flags all of it would be compiled again.
# shellcheck disable=SC2034 # used by the scripts that source this file
WITHOUT_SYMBOLS=("KCFLAGS=-Werror -g0" CONFIG_DEBUG_INFO_BTF_MODULES=)

# The kernel's build system splits paths at blanks, and virtme-ng takes only such paths for a directory that the guest may write to.
[[ $TREE$SLUICE_CACHE =~ ^[a-zA-Z0-9_+/.-]+$ ]] ||
	die "the VM supports only letters, digits and _ + . - in the paths of this tree, '$TREE', and of the cache, '$SLUICE_CACHE'; move it"

# What the guest runs: without symbols, and on a disk, because it reads files of this machine slowly.
PROGRAMS=$BUILD/programs

# compile ARGUMENT...: cargo, for all that the demo and the checks run. Each crate is compiled as a whole, which takes less time than parts that
# only a later build could use again; and by clippy, if it is there, whose complaints cargo repeats when lint asks for them.
compile() {
	local settings=(CARGO_INCREMENTAL=0)
	if clippy-driver --version &>/dev/null; then
		settings+=(RUSTC_WORKSPACE_WRAPPER=clippy-driver)
	fi
	env "${settings[@]}" cargo "$@"
}

# build_programs PACKAGE...: builds what the demo, the shell and the tests run, which is one profile, and puts it there; nothing in
# tests/check, which has built all.
build_programs() {
	local program
	[[ ! ${SLUICE_PROGRAMS_ARE_BUILT:-} ]] || return 0
	(cd "$TREE" && compile build --locked --quiet "${@/#/--package=}") || return
	for program in "${@/#sluice-cli/sluice}"; do
		provide_program "$BUILD/cargo/debug/$program" || return
	done
}

# provide_program FILE: copies it to PROGRAMS, if it has changed.
provide_program() {
	local copy=$PROGRAMS/${1##*/}
	[[ ! $copy -nt $1 ]] || return 0
	mkdir -p "$PROGRAMS"
	strip -o "$copy.$$" "$1" && mv "$copy.$$" "$copy"
}

# quick_arguments KERNEL: the arguments of vm/run that make an emulated VM quicker: each process of a program is at the same addresses, and is
# translated once; indirect calls are not protected against speculation, which no emulator does; ciphers are not tested at the boot; the kernel
# does not zero what it allocates, so that a test can find memory that the module has not zeroed. One kernel keeps all four, and so do benchmarks.
quick_arguments() {
	if [[ $1 != 6.1 && ${SLUICE_ACCEL:-$("$TREE/vm/detect-accelerator")} == tcg ]]; then
		printf '%s\n' --append norandmaps --append mitigations=off --append cryptomgr.notests --append init_on_alloc=0
	fi
}

# slowness: how many times slower than a quiet one this machine starts programs, a whole number from 1 to 20. What ends a command that
# hangs takes so much longer on a busy machine. A call outside of $( ) measures it once, also for the scripts that are called afterwards.
slowness() {
	local begin=${EPOCHREALTIME/[.,]/} number micros ordinary=250000
	if [[ ! ${SLUICE_SLOWNESS:-} ]]; then
		for ((number = 0; number < 100; number++)); do
			/bin/true
		done
		micros=$((${EPOCHREALTIME/[.,]/} - begin))
		SLUICE_SLOWNESS=$(((micros + ordinary - 1) / ordinary))
		((SLUICE_SLOWNESS <= 20)) || SLUICE_SLOWNESS=20
		export SLUICE_SLOWNESS
	fi
	printf '%d\n' "$SLUICE_SLOWNESS"
}

# hold_lock FILE: only one script at a time goes on from here, until this one exits.
hold_lock() {
	mkdir -p "$(dirname "$1")"
	exec {lock_fd}>"$1"
	if ! flock --nonblock "$lock_fd"; then
		say "waiting for another run that is using ${1##*/} …"
		flock "$lock_fd"
	fi
}

# kernel_names PASSES: the kernels in vm/kernels that pass this; 'all' is each that vm/run boots.
kernel_names() {
	awk -v passes="$1" '/^#/ { next } !header { for (i = 1; i <= NF; i++) column[$i] = i; header = 1; next }
		passes == "all" && $column["passes"] != "arm64" || $column["passes"] == passes { print $1 }' "$TREE/vm/kernels"
}

# kernel_field NAME FIELD: that column of vm/kernels.
kernel_field() {
	local value
	value=$(awk -v name="$1" -v field="$2" '/^#/ { next } !column { for (i = 1; i <= NF; i++) if ($i == field) column = i; next }
		$1 == name { print $column }' "$TREE/vm/kernels")
	[[ $value ]] || die "there is no kernel '$1'; the kernels are $(kernel_list)"
	printf '%s\n' "$value"
}

# In a sentence.
kernel_list() {
	kernel_names all | paste -sd ' ' | sed 's/ /, /g; s/\(.*\), /\1 and /'
}

# kernel_provider NAME: the script that gets this kernel.
kernel_provider() {
	local provider
	provider=$(kernel_field "$1" provider) || exit
	printf '%s\n' "$TREE/vm/providers/$provider"
}
