# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# To be sourced after vm/lib.sh: the builds of all programs and tests. Each command of cargo is for the same packages:
# what several depend on has other features for a part of them, and would be compiled again.

packages=(--locked --workspace)
# All integration tests: also those that need the module, which cargo test does not run.
programs=("${packages[@]}" --bins --test '*')

# compile_all ARGUMENT...: all programs, and the tests.
compile_all() {
	compile build "${programs[@]}" "$@" && compile test "${packages[@]}" --no-run "$@"
}
