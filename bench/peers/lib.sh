# SPDX-License-Identifier: MIT OR Apache-2.0
# Sourced by run, build and test: builds the benchmark with the third-party libraries of rings.
# shellcheck shell=bash
# shellcheck source=vm/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../vm/lib.sh"

# The version that Aeron's build requires, and one that is packaged for Python.
cmake_needed=3.30
cmake_package=cmake==3.31.6
peers=$TREE/bench/peers
output=$BUILD/peers
libraries=(aeron iceoryx2 tachyon)
profile=measure
mkdir -p "$output" "$BUILD/bench"

# Puts a cmake that is new enough first in the path.
provide_cmake() {
	local version
	version=$(cmake --version 2>/dev/null | sed -n '1s/.* //p')
	if printf '%s\n' "$cmake_needed" "${version:-0}" | sort --version-sort --check=quiet; then return; fi
	if [[ ! -x $output/cmake/bin/cmake ]]; then
		say "fetching $cmake_package"
		if ! { python3 -m venv "$output/cmake" && "$output/cmake/bin/pip" install --quiet "$cmake_package"; } >&2; then
			rm -rf "$output/cmake"
			say "Aeron will be skipped: it needs cmake $cmake_needed or newer, which pip cannot install (see above); check the network"
			return
		fi
	fi
	PATH=$output/cmake/bin:$PATH
}

# cargo_with FEATURES COMMAND [ARGUMENTS...]: cargo for the benchmark with these libraries, separated by spaces. The bindings of Tachyon
# need a libclang that supports C++23.
cargo_with() {
	local features=$1 command=$2
	shift 2
	(cd "$TREE/bench" && CXX=clang++-19 LIBCLANG_PATH=/usr/lib/llvm-19/lib \
		cargo "$command" --profile "$profile" --locked --quiet --features "${features// /,}" "$@")
}

# build_with FEATURES: fails if a library cannot be built. An error of an adapter is no reason to skip its library.
build_with() {
	if cargo_with "$1" build 2>"$output/build.log"; then return; fi
	if grep -q 'could not compile .sluice-bench.' "$output/build.log"; then
		die "cannot build the adapters of '$1': $(grep --after-context 10 --max-count 1 '^error' "$output/build.log")"
	fi
	return 1
}

# Builds with all libraries, or else with those that can be built. Sets `usable` to their names.
build_peers() {
	local library
	local -A needs=(
		[aeron]="cmake $cmake_needed, libbsd-dev, uuid-dev and libclang"
		[iceoryx2]="Rust 1.89 or newer"
		[tachyon]="clang 19"
	)
	"$TREE/vm/install-packages" "$peers/packages" || say "some packages are missing (see above); libraries that need them are skipped"
	provide_cmake
	say "building the benchmark with Aeron, iceoryx2 and Tachyon (the first time takes some minutes)"
	usable=("${libraries[@]}")
	if build_with "${usable[*]}"; then return; fi
	tail -n 20 "$output/build.log" >&2
	say "cannot build all (see above and $output/build.log); trying each alone"
	usable=()
	for library in "${libraries[@]}"; do
		if build_with "$library"; then
			usable+=("$library")
		else
			say "$library is skipped: it needs ${needs[$library]}, and its crates"
		fi
	done
	build_with "${usable[*]}" || die "cannot build the benchmark: $(tail -n 5 "$output/build.log")"
}
