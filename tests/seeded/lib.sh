# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# To be sourced, with $work as the folder of the logs: the header of a seeded bug, and its verdict from the output of the tests.
caught=0 failed=()
again=       # if set, cached verdicts are not used
declare -A kept_as=() # of each bug, the file that caches its verdict, named after the checksum

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
	failed+=("$1")
	printf '    its output is in %s\n' "${work:?}/$1.log"
}

# report_result PATCH STATUS SECONDS: reports the result after the tests have ended with that status.
report_result() {
	local name expect
	name=$(basename "$1" .patch)
	expect=$(header Expect "$1")
	if (($2 == 0)); then
		verdict "$name" "$3" "NOT CAUGHT: the tests passed"
	elif ! grep -qE -- "$expect" "${work:?}/$name.log"; then
		verdict "$name" "$3" "the tests failed, but without: $expect"
	else
		verdict "$name" "$3" caught
		touch "${kept_as[$name]}"
	fi
}

# is_kept NAME SUM: whether the verdict for this checksum is cached. Only verdicts of caught bugs are.
is_kept() {
	mkdir -p "$SLUICE_CACHE/seeded"
	kept_as[$1]=$SLUICE_CACHE/seeded/$1-$2.caught
	[[ ! $again && -e ${kept_as[$1]} ]] || return
	touch "${kept_as[$1]}"
	verdict "$1" 0 'caught (kept)'
}

# checksum_of FILE-OR-FOLDER...: checksums of contents, with names.
checksum_of() {
	find "$@" -type f -print0 | sort -z | xargs -0 sha256sum
}

# all_caught: prints how many were caught and the others, and fails if there are any.
all_caught() {
	((${#failed[@]} == 0)) || printf '\nnot caught: %s\n' "${failed[*]}"
	printf '\n%d passed, %d failed\n' "$caught" "${#failed[@]}"
	((${#failed[@]} == 0))
}
