# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# To be sourced, with $work as the folder of the logs: what a planted bug says of itself in the lines before its diff, and how it is
# judged by what the tests said.
caught=0 failed=0
again=       # if set, bugs whose verdict is kept are tried again
declare -A kept_as=() # the file that says of a bug that it was caught, with all that decides on it in the name

# header FIELD PATCH: the text after "FIELD: " in the lines before the diff.
header() {
	sed -n "/^---/q; s/^$1: *//p" "$2"
}

# verdict NAME SECONDS TEXT
verdict() {
	printf '%-28s %4d s  %s\n' "$@"
	if [[ $3 == caught* ]]; then
		caught=$((caught + 1))
		return
	fi
	failed=$((failed + 1))
	printf '    its output is in %s\n' "${work:?}/$1.log"
}

# judge PATCH STATUS SECONDS: after the tests ran with it and ended with that status.
judge() {
	local name expect
	name=$(basename "$1" .patch)
	expect=$(header Expect "$1")
	if (($2 == 0)); then
		verdict "$name" "$3" "NOT CAUGHT: the tests passed"
	elif ! grep -qE -- "$expect" "${work:?}/$name.log"; then
		verdict "$name" "$3" "the tests failed for another reason than: $expect"
	else
		verdict "$name" "$3" caught
		touch "${kept_as[$name]}"
	fi
}

# is_kept NAME SUM: whether it was caught before, when everything that decides on it had this checksum. Only such verdicts are kept.
is_kept() {
	mkdir -p "$SLUICE_CACHE/seeded"
	kept_as[$1]=$SLUICE_CACHE/seeded/$1-$2.caught
	[[ ! $again && -e ${kept_as[$1]} ]] || return
	touch "${kept_as[$1]}"
	verdict "$1" 0 'caught (kept)'
}

# checksum_of FILE-OR-FOLDER...: of the content and the names.
checksum_of() {
	find "$@" -type f -print0 | sort -z | xargs -0 sha256sum
}

# all_judged: says how many were caught, and fails if one was not.
all_judged() {
	printf '\n%d passed, %d failed\n' "$caught" "$failed"
	((failed == 0))
}
