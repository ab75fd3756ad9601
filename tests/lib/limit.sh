# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# To be sourced: runs commands with a time limit. A command runs in its own process group, so that all of its processes can be
# ended, at the limit and when the sourcing script is interrupted.

group=  # the process group of the running command, if any
grace=5 # seconds from SIGTERM to SIGKILL; longer if nested commands have limits of their own

# run_limited SECONDS COMMAND...: the status is 124 if the command was ended at its limit.
run_limited() {
	local limit=$1 clock ended='' status=0
	shift
	set -m
	(
		set +m
		"$@"
	) &
	group=$!
	set +m
	sleep "$limit" >/dev/null 2>&1 &
	clock=$!
	wait -n -p ended "$group" "$clock" || status=$?
	[[ $ended != "$clock" ]] || status=124
	# A child that gets SIGTERM before its exec still has this shell's traps and would run them.
	{ kill -KILL "$clock" && wait "$clock"; } 2>/dev/null || true
	end_group
	return "$status"
}

# Ends the group, including processes that outlive the command. SIGTERM comes first: vm/run then ends its VM, which is in
# another group.
end_group() {
	local tries ended=$group
	[[ $ended ]] || return 0
	group=
	kill -TERM -- "-$ended" 2>/dev/null || true
	for ((tries = 0; tries < 10 * grace; tries++)); do
		kill -0 -- "-$ended" 2>/dev/null || break
		sleep 0.1
	done
	kill -KILL -- "-$ended" 2>/dev/null || true
	wait "$ended" 2>/dev/null || true
}
trap end_group EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
