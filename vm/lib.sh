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

# hold_lock FILE: only one script at a time goes on from here, until this one exits.
hold_lock() {
	mkdir -p "$(dirname "$1")"
	exec {lock_fd}>"$1"
	if ! flock --nonblock "$lock_fd"; then
		say "waiting for another run that is using ${1##*/} …"
		flock "$lock_fd"
	fi
}
