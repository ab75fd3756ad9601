# SPDX-License-Identifier: MIT OR Apache-2.0
# Each target runs a script; this file only names them.

KERNEL ?= 6.12
# QUICK=1 measures little and counts no instructions, FULL=1 all sizes and most suites.
BENCH := $(if $(QUICK),--quick)$(if $(FULL),--full)
PREFIX ?= /usr/local
INSTALL_OPTIONS = --prefix "$(PREFIX)" --destdir "$(DESTDIR)" $(if $(DKMS),--dkms)
# Of `make fuzz`: half for tests/fuzz, half for tests/kfuzz.
HOURS ?= 1
export KERNELS TESTS STRESS KILLS SEED FRESH DEMO STEP

SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help demo check check-all coverage fuzz shell deb rpm install uninstall bench bench-feed bench-peers format lint test-unit test-vm clean

help: ## list the targets
	@echo 'make TARGET, where TARGET is one of'
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 15
	@echo
	@echo 'Times are for 2 processors that emulate the VM; those of the demo: the first time, with downloads, and later.'
	@echo 'DEMO=long shows the details of the demo, STEP=NAME repeats one step. FRESH=1 repeats checks that have passed,'
	@echo 'KERNELS="NAME ..." chooses their kernels, TESTS="FILTER ..." the tests in the VM, STRESS=60 the seconds of stress'
	@echo "and races, KILLS=100000 the kills of the kill storm, SEED=1 the seed of random choices. KERNEL=6.12 is the kernel for demo, shell and bench. The kernels: $$(. vm/lib.sh && kernel_list)."

demo: ## two containers, one device node, two files: nothing crosses; then each kind of channel; 5 and 2 minutes
	@vm/demo $(KERNEL)

check: ## lint, unit tests, the suite on 6.12, a selection on 6.1, one seeded bug of each subject; 14 minutes at first
	@tests/check

check-all: ## everything: all kernels, all seeded bugs, data races, crashes, sanitizers, the benchmark; hours, resumed; ARCH=arm64: the suite on arm64
	@$(if $(filter arm64,$(ARCH)),tests/arm64,tests/check --all)

coverage: ## the lines of kernel/ and the crates that the tests execute; an hour
	@tests/check coverage

shell: ## a prompt in the VM with the module loaded
	@vm/shell $(KERNEL)

deb: ## packages for Debian and Ubuntu, in build/deb; 3 minutes
	@packaging/deb

rpm: ## packages for distributions with RPM, in build/rpm; 3 minutes
	@packaging/rpm/build

install: ## what 'cargo build --release' has built, below PREFIX=/usr/local; DKMS=1 adds the module for DKMS; docs/install.md
	@packaging/install $(INSTALL_OPTIONS)

uninstall: ## remove what 'make install' with the same options installs
	@packaging/install --remove $(INSTALL_OPTIONS)

bench: ## measure against what people use today, in the VM; build/bench/report.html; QUICK=1, FULL=1
	@vm/bench $(if $(QUICK),,--count) $(KERNEL) $(BENCH) --json build/bench/results.json --html build/bench/report.html --svg build/bench/plot.svg

bench-feed: ## measure packets from the kernel, in a VM with an isolated processor; build/bench/feed.html; QUICK=1, FULL=1
	@vm/bench --isolate $(KERNEL) $(BENCH) --suite feed --json build/bench/feed.json --html build/bench/feed.html

bench-peers: ## measure the ring against iceoryx2, Tachyon and Aeron, on this machine; build/bench/peers.html
	@bench/peers/run

fuzz: ## fuzz rings and the messages of sluiced for half of HOURS=1, the module in the VM for the other half
	@tests/fuzz --seconds $$(($(HOURS) * 1800 / $$(ls fuzz/fuzz_targets | wc -l)))
	@tests/kfuzz --minutes $$(($(HOURS) * 30))

format: ## layout of Rust and shell sources
	@tests/check format

lint: ## clippy, sparse, checkpatch, licence lines, links
	@tests/check lint

test-unit: ## the tests that need no VM
	@tests/check unit

test-vm: ## the suites in the VM
	@tests/check vm

clean: ## remove build/; the kernels stay in the cache
	rm -rf build
