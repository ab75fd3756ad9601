# SPDX-License-Identifier: MIT OR Apache-2.0
# Each target runs a script; this file only names them.

KERNEL ?= 6.12
# QUICK=1 measures little and counts no instructions, FULL=1 all sizes and most suites.
BENCH := $(if $(QUICK),--quick)$(if $(FULL),--full)
export KERNELS TESTS STRESS

SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help demo check check-long check-crash shell bench bench-feed bench-peers format lint test-unit test-vm clean

help: ## list the targets
	@echo 'make TARGET, where TARGET is one of'
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 15
	@echo
	@echo 'KERNELS="NAME ..." chooses the kernels for check, check-long and test-vm, TESTS="filter ..." the tests, STRESS=60 the'
	@echo 'seconds that stress and races last (without it 60 where it counts most, else 10), KERNEL=6.12 the kernel for demo,'
	@echo "shell and bench. The kernels are $$(. vm/lib.sh && kernel_list)."

demo: ## two containers send real files through one device node, isolated; 16 subscribers receive one; a map survives a crash
	@vm/demo $(KERNEL)

check: ## build and pass every test
	@tests/check

check-long: ## check, and what takes longer: the whole suite on every kernel, data races, coverage, Miri
	@tests/check --long

check-crash: ## durable maps after power cuts, on failing disks, and when the daemon or the VM is killed; about 40 minutes
	@KERNEL=$(KERNEL) tests/crash/all

shell: ## a prompt in the VM with the module loaded
	@vm/shell $(KERNEL)

bench: ## measure against what people use today, in the VM; a report with plots is build/bench/report.html; QUICK=1, FULL=1
	@vm/run-tool $(if $(QUICK),,--count) $(KERNEL) sluice-bench $(BENCH) --json build/bench/results.json --html build/bench/report.html --svg build/bench/plot.svg

bench-feed: ## measure packets from the kernel, in a VM with an isolated processor; build/bench/feed.html; QUICK=1, FULL=1
	@vm/run-tool --isolate $(KERNEL) sluice-bench $(BENCH) --suite feed --json build/bench/feed.json --html build/bench/feed.html

bench-peers: ## measure the ring against iceoryx2, Tachyon and Aeron, on this machine; build/bench/peers.html
	@crates/sluice-bench/peers/run

format: ## layout of Rust and shell sources
	@tests/check format

lint: ## clippy, sparse, checkpatch, licence lines
	@tests/check lint

test-unit: ## the tests that need no VM
	@tests/check unit

test-vm: ## the suites in the VM
	@tests/check vm

clean: ## remove build/; the kernels stay in the cache
	rm -rf build
