# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Sourced by check and tests/conform, after vm/lib.sh.

# has_go: whether Go is new enough for the module, and says so if it is not: Debian 12 has an older one.
has_go() {
	local version
	version=$(go env GOVERSION 2>/dev/null) || true
	[[ $(printf '%s\n' go1.23 "${version:-go0}" | sort -V | head -n 1) == go1.23 ]] || {
		say "NOT TESTED: the Go module, which needs Go 1.23 or newer"
		return 1
	}
}
