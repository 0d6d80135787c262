# SPDX-License-Identifier: GPL-2.0-only
# `make lab` and `make test` do all the set-up themselves; see README.md.

# A rustup toolchain comes before Debian's.
export PATH := $(HOME)/.cargo/bin:$(PATH)

OVERBOOK := $(or $(CARGO_TARGET_DIR),target)/release/overbook
RESULTS = lab-results
# The longest first: it has a CPU for itself.
LAB_SCENARIOS := linux-once lock-2to1 ipi-2to1 compute-2to1
# As libvirt groups a VM: a cgroup for it, and in it one for each vCPU.
LAB_SETTINGS := --set layout.cgroups=per-vcpu
C_FILES := $(shell git -c safe.directory='*' ls-files '*.c' '*.h')

# Kernels that ring 2 boots: a series, the newest that qualifies, the one with this project's patches. Which of its tests: all but
# those of the patches for the newest kernel, which CI has no time to build a second one for, or those named.
KERNELS = 6.18 newest patched
TESTS = --skip newest_series

.PHONY: all build clean container deb deny format fresh fresh-quick kernel kernel-test lab lint ring1 ring2 setup test

all: build

# What each target starts uses all CPUs by itself, and two of them would install packages at once.
.NOTPARALLEL:

## Install what the project needs; does nothing where all is there.
setup:
	@tools/setup

build: setup
	cargo build --release --locked

## The main job: an emulated oversubscribed KVM host, measured.
lab: build
	$(OVERBOOK) lab emulator --build
	$(OVERBOOK) lab run $(LAB_SCENARIOS:%=scenarios/headline/%.toml) $(LAB_SETTINGS) --kernel 6.18 --accel icount --jobs 2 --output $(RESULTS)

## The kernel with this project's patches, for the lab: docs/kernel.md.
kernel: build
	$(OVERBOOK) lab kernels --fetch patched

## What the patches do, for each series of kernels: boots them. CI does so for the first.
kernel-test:
	@$(MAKE) ring2 KERNELS="patched patched-7.3" TESTS=kernel::

## Linters and both rings of tests.
test: lint ring1 ring2

## Seconds, no root.
ring1: setup
	cargo test --release --locked --workspace

## Boots kernels in QEMU, and lets a real Prometheus scrape.
ring2: build
	$(OVERBOOK) lab emulator --build
	$(OVERBOOK) lab kernels $(KERNELS:%=--fetch %)
	cargo test --release --locked --features lab-tests --package overbook --test lab --test prometheus -- $(TESTS)

lint:
	@tools/setup lint
	cargo fmt --all --check
	@[ -n "$(C_FILES)" ] || { echo "lint: git lists no files: is this a clone?" >&2; exit 1; }
	clang-format-19 --dry-run --Werror $(C_FILES)
	cargo clippy --release --locked --workspace --all-targets --all-features -- -D warnings

## Proves that `make lab` and `make test` work in a minimal Debian 12; as root.
fresh: setup
	@setpriv --pdeathsig TERM tools/fresh

## As much of that as CI has time for.
fresh-quick: setup
	@setpriv --pdeathsig TERM tools/fresh --quick

## A Debian package, in deb/.
deb: build
	rm -f deb/overbook_*.deb
	packaging/deb/build $(OVERBOOK) deb

## An image of a container, in container/; as root.
container: build
	@tools/setup container
	packaging/container/build $(OVERBOOK) container

## What dependencies may be: licences and sources. Not in CI: the program for it is built first.
deny: setup
	cargo deny --version >/dev/null 2>&1 || cargo install cargo-deny --locked
	cargo deny check licenses bans sources

## Format everything.
format:
	@tools/setup lint
	cargo fmt --all
	clang-format-19 -i $(C_FILES)

clean:
	cargo clean
	rm -rf lab-results
