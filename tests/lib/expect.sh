# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Counts expectations, for scripts in tests/guest/. `log` is a file that is shown if one has failed.

passed=0 failed=0 skipped=0

# expect WHAT SEEN EXPECTED
expect() {
	if [[ $2 == "$3" ]]; then
		passed=$((passed + 1))
	else
		printf "FAILED: %s: expected '%s', saw '%s'\n" "$1" "$3" "$2"
		failed=$((failed + 1))
	fi
}

verdict() {
	((failed == 0)) || cat "${log:?}"
	printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
	exit $((failed > 0))
}

# await COMMAND...: until it succeeds, at most a minute.
await() {
	local tries
	for ((tries = 0; tries < 120; tries++)); do
		! "$@" >/dev/null || return 0
		sleep 0.5
	done
}

# writable DIRECTORY: the guest sees the host's files read-only. `work` is on a tmpfs.
writable() {
	mkdir -p "${work:?}$1"/{upper,work}
	mount -t overlay -o "lowerdir=$1,upperdir=$work$1/upper,workdir=$work$1/work" overlay "$1"
}
