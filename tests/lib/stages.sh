# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck disable=SC2030,SC2031,SC2034,SC2154 # parallel stages pass their variables in a file; tests/check reads some
# To be sourced, with $logs as the folder of the logs: stages, which are commands with a time budget, and their summary.

# shellcheck source=tests/lib/limit.sh
. "$TREE/tests/lib/limit.sh"
grace=15
# Measured once, for all stages and what they call.
slowness >/dev/null

declare -A result   # of each stage so far: ok or failed
declare -A kept=()  # 1 for each stage that was not repeated
summary=()          # one line per stage
passed=0 failed=0 skipped=0
parallel=           # the process that runs stages in parallel

# lost_lines LOG: how many lines belong to attempts of vm/run whose VM died.
lost_lines() {
	local line
	line=$(grep -anF 'trying again (its console is in' "$1" | tail -n 1) || true
	printf '%d\n' "${line%%:*}"
}

# Adds the counts of the test programs in a stage's log; fails if any of them counted a failure.
count_tests() {
	local log=$1 sums p f s
	sums=$(tail -n +$(($(lost_lines "$log") + 1)) "$log" | sed -nE \
		-e 's/^([0-9]+) passed, ([0-9]+) failed(, ([0-9]+) skipped)?$/\1 \2 0\4/p' \
		-e 's/^test result: .* ([0-9]+) passed; ([0-9]+) failed; ([0-9]+) ignored;.*$/\1 \2 \3/p')
	local any=1
	while read -r p f s; do
		[[ $p ]] || continue
		passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + 10#$s))
		((f == 0)) || any=0
	done <<<"$sums"
	return "$any"
}

# stage NAME BUDGET COMMAND...: runs the command and shows its output. It fails if it takes longer than BUDGET seconds, multiplied by the
# slowness of this machine, and is ended then.
stage() {
	local name=$1 budget started=$SECONDS took status=0 verdict=ok out tee
	budget=$(($2 * $(slowness)))
	local log=$logs/${name// /-}.log
	shift 2
	printf '\n== %s (at most %d s)\n' "$name" "$budget"
	exec {out}> >(exec tee "$log")
	tee=$!
	run_limited "$budget" "$@" </dev/null >&"$out" 2>&1 {out}>&- || status=$?
	exec {out}>&-
	await_tee "$tee"
	took=$((SECONDS - started))
	# A test that failed before the VM died has failed.
	if head -n "$(lost_lines "$log")" "$log" | grep -aE '^(not ok|FAIL)|FAILED' >/dev/null; then
		status=1
	fi
	if ((status == 124)); then
		verdict='failed: too slow'
	elif ((status != 0)); then
		verdict=failed
	fi
	# A stage that fails without a failed test counts as one failure, so that the total is not zero.
	if ! count_tests "$log" && [[ $verdict != ok ]]; then
		failed=$((failed + 1))
	fi
	result[$name]=${verdict%%:*}
	summary+=("$(printf '%-28s %-18s %5d s of %5d s' "$name" "$verdict" "$took" "$budget")")
	printf '== %s … %s, %d s of %d s\n' "$name" "$verdict" "$took" "$budget"
}

# kept_stage NAME BUDGET INPUT... -- COMMAND...: as stage; but once it has passed, it is not repeated until an input, which is a file or
# folder of the sources, the compiler, or the variable `kept_for` changes. The variable `again` prevents that.
kept_stage() {
	local name=$1 budget=$2 inputs=() before=$passed skipped_before=$skipped sum file p s
	shift 2
	while [[ $1 != -- ]]; do
		inputs+=("$1")
		shift
	done
	shift
	sum=$({
		printf '%s\n' "$name" "$*" "${kept_for:-}"
		find "${inputs[@]}" -type f -print0 | sort -z | xargs -0 sha256sum
		rustc --version
	} | sha256sum | cut -c 1-32)
	file=$SLUICE_CACHE/stages/$sum
	if [[ -s $file && ! ${again:-} ]]; then
		read -r p s <"$file"
		passed=$((passed + p)) skipped=$((skipped + s))
		result[$name]=ok
		kept[$name]=1
		summary+=("$(printf '%-28s %s' "$name" "ok (kept)")")
		printf '\n== %s … ok (kept): its inputs are those of a run that passed\n' "$name"
		return
	fi
	stage "$name" "$budget" "$@"
	[[ ${result[$name]} == ok ]] || return 0
	mkdir -p "${file%/*}"
	printf '%d %d\n' $((passed - before)) $((skipped - skipped_before)) >"$file.$$"
	mv "$file.$$" "$file"
}

# Does not wait for a process outside the stage's group that still holds the pipe.
await_tee() {
	local tries
	for ((tries = 0; tries < 50; tries++)); do
		kill -0 "$1" 2>/dev/null || break
		sleep 0.1
	done
	kill -KILL "$1" 2>/dev/null || true
	wait "$1" 2>/dev/null || true
}

# needs STAGE... -- stage...: runs a stage only if these passed; otherwise it is reported as not run.
needs() {
	local missing=()
	while [[ $1 != -- ]]; do
		[[ ${result[$1]:-ok} == ok ]] || missing+=("$1")
		shift
	done
	shift
	if ((${#missing[@]} == 0)); then
		"$@"
		return
	fi
	failed=$((failed + 1))
	result[$2]=failed
	summary+=("$(printf '%-28s %s' "$2" "not run: ${missing[*]} failed")")
	printf '\n== %s … not run: %s failed\n' "$2" "${missing[*]}"
}

# begin_parallel COMMAND...: runs it, with its stages, in parallel to what follows. join_parallel shows and counts its output.
begin_parallel() {
	rm -f "$logs/parallel.results"
	printf '\n== in parallel: %s, with its output in %s\n' "$1" "$logs/parallel.log"
	# In its own process group, so that all of it can be ended.
	set -m
	(
		set +m
		# A subshell does not inherit traps. What is known is reported also when this shell dies.
		trap 'end_group; print_results >"$logs/parallel.results"' EXIT
		trap 'exit 143' TERM
		summary=() passed=0 failed=0 skipped=0
		"$@"
	) </dev/null >"$logs/parallel.log" 2>&1 &
	parallel=$!
	set +m
}

# Prints the results as shell commands for join_parallel.
print_results() {
	local name
	for name in "${!result[@]}"; do printf 'result[%q]=%q\n' "$name" "${result[$name]}"; done
	((${#summary[@]} == 0)) || printf 'summary+=(%s)\n' "${summary[*]@Q}"
	# shellcheck disable=SC2016 # expanded by join_parallel
	printf 'passed=$((passed + %d)) failed=$((failed + %d)) skipped=$((skipped + %d))\n' "$passed" "$failed" "$skipped"
}

join_parallel() {
	local status=0
	wait "$parallel" || status=$?
	parallel=
	cat "$logs/parallel.log"
	# shellcheck source=/dev/null # made by print_results
	[[ ! -e $logs/parallel.results ]] || . "$logs/parallel.results"
	if ((status)); then
		failed=$((failed + 1))
		summary+=("in parallel: ended with status $status; the end of its output is in $logs/parallel.log")
	fi
}

end_all() {
	[[ ! $parallel ]] || kill -TERM -- "-$parallel" 2>/dev/null || true
	end_group
	[[ ! $parallel ]] || wait "$parallel" 2>/dev/null || true
}
trap end_all EXIT

# Repeats the causes at the end of a long log.
quote_failures() {
	local name log
	for name in "${!result[@]}"; do
		log=$logs/${name// /-}.log
		[[ ${result[$name]} == failed && -s $log ]] || continue
		printf '== %s failed; the end of its output:\n' "$name"
		{
			grep -aE -e '^(not ok|FAIL|error)|FAILED|panicked' -f "$TREE/crates/sluice-testkit/kernel-complaints.txt" "$log" | tail -n 12 || true
			tail -n 6 "$log"
			# Last, so that it is seen: each failed test of the suite with its error.
			grep -aE --no-group-separator -A 3 '^[a-z0-9_:]+ failed:$' "$log" | head -n 16 || true
		} | cut -c 1-200
		printf '\n'
	done
}

# Prints the summary; fails if a stage or a test failed.
finish() {
	local line
	printf '\n'
	for line in "${summary[@]}"; do
		printf '%s\n' "$line"
	done
	printf '\n'
	if ((failed == 0)); then
		printf 'check: passed in %d s\n' "$SECONDS"
	else
		quote_failures
		printf 'check: FAILED in %d s; the output of each stage is in %s\n' "$SECONDS" "$logs"
	fi
	printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
	((failed == 0))
}
