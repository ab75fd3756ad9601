# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# To be sourced: the files that the checks of the sources read. An unpacked archive has no git repository.

source_files() {
	if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
		git ls-files --cached --others --exclude-standard
	else
		find . -path ./build -prune -o -type f -printf '%P\n'
	fi | sort | while read -r file; do
		[[ ! -f $file ]] || printf '%s\n' "$file"
	done
}

shell_scripts() {
	local file first
	source_files | while read -r file; do
		first=
		read -r first <"$file" || true
		if [[ $file == *.sh || $first =~ ^'#!'.*(bash|/sh)$ || $first == '# shellcheck shell='* ]]; then
			printf '%s\n' "$file"
		fi
	done 2>/dev/null
}
