# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# To be sourced in the root of the tree: names of tests, read from the sources, and references to tests that do not exist.

# The end-to-end tests, as sluice-tests --list prints them: the lists in the topic! macros.
suite_tests() {
	awk '
		/^topic!\($/ { state = "name"; next }
		state == "name" { gsub(/[ ",]/, ""); topic = $0; state = "list"; next }
		/^\);$/ { state = "" }
		state == "list" && /^ +[a-z0-9_]+,$/ { gsub(/[ ,]/, ""); print topic "::" $0 }' \
		tests/src/suite/*.rs tests/src/suite/*/mod.rs
}

# unit_tests FOLDER: the functions with #[test] in a folder, with their file as the module: `ring::record::NAME`.
unit_tests() {
	local files
	mapfile -t files < <(find "$1" -name '*.rs' | sort)
	awk -v folder="$1/" '
		FNR == 1 { module = FILENAME; sub(folder, "", module); sub(/(\/mod)?\.rs$/, "", module); gsub(/\//, "::", module) }
		/^ *#\[(tokio::)?test/ { found = 1 }
		found && match($0, /fn [a-z0-9_]+/) { print module "::" substr($0, RSTART + 3, RLENGTH - 3); found = 0 }' \
		"${files[@]}"
}

# The tests that can run on the device, with those of its program that exist only over memfd.
device_tests() {
	unit_tests crates/sluice/tests | sed 's/^/on_device::/'
}

# names_in FILE: the words that look like a name of a test: `TOPIC::NAME`, `TOPIC::` or `TOPIC::NAME*`.
names_in() {
	grep -ohE '\b[a-z0-9_]+::[a-z0-9_]*\*?' "$1" || true
}

# filters_in FILE: also filters without `::`, if they are in a variable TESTS.
filters_in() {
	names_in "$1"
	{ grep -ohP 'TESTS="?\K[a-z0-9_:]+( [a-z0-9_: ]+(?="))?' "$1" || true; } | tr ' ' '\n'
}

# missing_names TESTS NAME...: prints each NAME that is not in the list TESTS. `TOPIC::` and `NAME*` match any with that prefix.
missing_names() {
	local tests=$'\n'$1$'\n' name
	shift
	for name in "$@"; do
		case $name in
		*'*') [[ $tests == *$'\n'"${name%\*}"* ]] ;;
		*::) [[ $tests == *$'\n'"$name"* ]] ;;
		*) [[ $tests == *$'\n'"$name"$'\n'* ]] ;;
		esac || printf '%s\n' "$name"
	done
}

# missing_filters TESTS FILTER...: prints each FILTER that is a part of no name in the list TESTS.
missing_filters() {
	local tests=$1 filter
	shift
	for filter in "$@"; do
		[[ $tests == *"$filter"* ]] || printf '%s\n' "$filter"
	done
}
