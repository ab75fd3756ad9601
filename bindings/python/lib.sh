# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Sourced by build, check, bench and tests/conform: Python environments in build/python. SLUICE_PYTHON is the interpreter; default: python3.
# shellcheck source=vm/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../vm/lib.sh"
python_source=$TREE/bindings/python
interpreter=${SLUICE_PYTHON:-python3}

# has_python: whether the interpreter is new enough for the package, and says so if it is not.
has_python() {
	"$interpreter" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
		say "NOT TESTED: the Python package, which needs Python 3.11 or newer"
		return 1
	}
}

# environment NAME: makes the environment with what requirements-NAME.txt lists, unless it is there, and prints its Python.
environment() {
	local directory=$BUILD/python/$1 list=$python_source/requirements-$1.txt key
	key=$({ "$interpreter" -VV && cat "$list"; } | sha256sum)
	if [[ $(cat "$directory/key" 2>/dev/null) != "$key" ]]; then
		rm -rf "$directory"
		"$interpreter" -m venv "$directory" >&2 || die "cannot make a Python environment in $directory; install python3-venv and run again"
		pip_install "$directory/bin/python" -r "$list" ||
			die "pip could not install what $list names; check that this machine reaches a Python package index and run again"
		printf '%s\n' "$key" >"$directory/key"
	fi
	printf '%s\n' "$directory/bin/python"
}

# pip_install PYTHON ARGUMENT...
pip_install() {
	"$1" -m pip install --quiet --disable-pip-version-check --only-binary :all: "${@:2}" >&2
}

# environment_with_wheel NAME: the same, with the wheel of this tree.
environment_with_wheel() {
	local python wheel
	python=$(environment "$1") && wheel=$("$python_source/build") && pip_install "$python" --no-deps --force-reinstall "$wheel" &&
		printf '%s\n' "$python"
}
