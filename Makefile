# Tombolo. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Builds and downloads stay outside the checkout.
export TOMBOLO_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tombolo
export CARGO_TARGET_DIR ?= $(TOMBOLO_CACHE)/target

.PHONY: help setup assets assets-node demo installed test e2e lint conformance upstream-conformance mutants bench fuzz latency scale image chart doc ci clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install or name the tools that the build needs
	@tools/setup

assets: ## build etcd, kube-apiserver, kube-controller-manager, kubectl once, outside the checkout
	@tools/assets

assets-node: ## build what nodes need besides (TOMBOLO_CLUSTERS=local, as root): kubelet, kube-proxy, CoreDNS and others
	@tools/setup node
	@tools/assets node

demo: setup assets $(if $(NODES),assets-node) ## two real control planes, one mesh: export, import, conflict, partition; NODES=1 as root: with pods and packets
	@TOMBOLO_ASSETS="$$(tools/assets --print)" cargo run --quiet -p tombolo-e2e --bin demo

installed: setup assets assets-node ## as root: CLUSTERS (2) with nodes and Tombolo installed by Helm, until Ctrl-C
	@TOMBOLO_ASSETS="$$(tools/assets --print)" cargo run --quiet -p tombolo-e2e --bin installed -- $(or $(CLUSTERS),2)

test: setup assets ## everything this machine can run; TEST_ON_KIND="installed" for programs on kind clusters
	@tools/assets node >/dev/null
	@TOMBOLO_ASSETS="$$(tools/assets --print)" TEST_ON_KIND="$(TEST_ON_KIND)" tools/engine run --if-possible tools/test

# Programs of `make e2e`, and those of them that CI runs on kind clusters. It runs the others on clusters of provider `local`, and
# no program on both.
E2E_TESTS ?= kind $(CI_E2E_TESTS) packet_faults conformance without_implementation_pods
CI_E2E_TESTS = installed packets walkthroughs

e2e: setup assets ## E2E_TESTS (all that need nodes) on two kind clusters; needs Docker, or root and Debian's packages of it
	@for name in $(or $(strip $(E2E_TESTS)),''); do \
		[ -n "$$(find e2e/tests e2e/testbed/tests conformance/tests -maxdepth 1 -name "$$name.rs")" ] || \
			{ echo "E2E_TESTS: there is no test program '$$name'; leave it unset for all that need nodes" >&2; exit 2; }; \
	done
	@if [ "$$(id -u)" = 0 ]; then tools/setup engine; fi
	@kind/with tools/test $(E2E_TESTS:%=--test %)

conformance: setup assets ## the conformance cases on two fresh control planes; REPORT=FILE writes a report
	@TOMBOLO_ASSETS="$$(tools/assets --print)" TOMBOLO_REPORT="$(abspath $(REPORT))" cargo test -p tombolo-conformance

UPSTREAM_REPORTS ?= $(CARGO_TARGET_DIR)/upstream-conformance

upstream-conformance: setup ## as root: the upstream MCS-API suite, CONFORMANCE_TEST=your build of it, on two installed clusters; UPSTREAM_FLAGS
	@CONFORMANCE_TEST="$(CONFORMANCE_TEST)" cargo run --quiet -p tombolo-e2e --bin upstream -- --check
	@$(MAKE) --no-print-directory assets assets-node >/dev/null
	@TOMBOLO_ASSETS="$$(tools/assets --print)" CONFORMANCE_TEST="$(CONFORMANCE_TEST)" \
		cargo run --quiet -p tombolo-e2e --bin upstream -- --reports "$(abspath $(UPSTREAM_REPORTS))" -- $(UPSTREAM_FLAGS)

mutants: setup assets ## wrong implementations, each of which the conformance suite must find
	@cargo build --quiet -p tombolo --features mutants --bin tombolo-mutant
	@TOMBOLO_ASSETS="$$(tools/assets --print)" TOMBOLO_BIN="$(CARGO_TARGET_DIR)/debug/tombolo-mutant" \
		cargo run --quiet -p tombolo-e2e --bin mutants -- $(MUTANTS_FLAGS)

lint: setup ## format, clippy, documentation; warnings are errors
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --quiet --workspace --all-targets -- --deny warnings
	cargo clippy --quiet -p tombolo-core -p tombolo --features tombolo/mutants --lib --bins -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" cargo doc --quiet --workspace --no-deps

# The benches of the store need a release build of the whole product; `make test` runs each of them once as it is built anyway.
BENCHES ?= tombolo-benches tombolo-benches-store

bench: setup assets ## every criterion bench of the packages BENCHES; BENCH_FLAGS=--quick for a short run
	@TOMBOLO_ASSETS="$$(tools/assets --print)" tools/engine run --if-possible \
		cargo bench --quiet $(BENCHES:%=-p %) -- --noplot $(BENCH_FLAGS)

FUZZ_TARGETS = cluster_config cluster_service service_export endpoint_slice endpoint_slice_message identity ip node

fuzz: setup ## the decoders on damaged records; RUNS per target, TARGETS="node ip" for some
	@command -v cargo-fuzz >/dev/null || { echo "cargo-fuzz is missing: run 'cargo install cargo-fuzz'" >&2; exit 2; }
	@cd fuzz && cargo run --quiet --example seed ../impl/core/fixtures corpus
	@cd fuzz && for target in $(or $(TARGETS),$(FUZZ_TARGETS)); do \
		RUSTC_BOOTSTRAP=1 cargo fuzz run $(or $(FUZZ_FLAGS),--sanitizer=none) "$$target" -- \
			-runs=$(or $(RUNS),100000) -max_len=8192 -print_final_stats=1; \
	done

latency: setup assets ## export to import and endpoint to slice between two clusters, release build
	@TOMBOLO_ASSETS="$$(tools/assets --print)" cargo run --quiet --release -p tombolo-e2e --bin latency

scale: setup assets ## one operator and many peers: time until synced, memory, processor; SCALE_FLAGS="--peers 255"
	@TOMBOLO_ASSETS="$$(tools/assets --print)" cargo run --quiet --release -p tombolo-e2e --bin scale -- $(SCALE_FLAGS)

MUSL = $(shell uname -m)-unknown-linux-musl
IMAGE ?= localhost/tombolo:$(shell sed -n 's/^appVersion: "\(.*\)"$$/\1/p' chart/Chart.yaml)

image: setup ## the container image IMAGE of a static release build; needs Docker, musl-gcc and Rust's musl target
	@rustup target list --installed | grep -qx $(MUSL) || { echo "run 'rustup target add $(MUSL)'" >&2; exit 2; }
	@command -v musl-gcc >/dev/null || { echo "musl-gcc is missing: run 'apt-get install musl-tools'" >&2; exit 2; }
	cargo build --release --package tombolo --bin tombolo --target $(MUSL)
	@install -D "$(CARGO_TARGET_DIR)/$(MUSL)/release/tombolo" "$(CARGO_TARGET_DIR)/image/tombolo"
	@tools/engine run docker build --file image/Dockerfile --tag $(IMAGE) "$(CARGO_TARGET_DIR)/image"

chart: setup assets ## the Helm chart: rendered, checked, and installed on two control planes
	@tools/assets node >/dev/null
	@TOMBOLO_ASSETS="$$(tools/assets --print)" cargo test -p tombolo-e2e --test chart --test installation

doc: setup ## API documentation
	cargo doc --workspace --no-deps

ci: lint ## what .ci/run runs: lint, short runs of benches, all tests, kind clusters; as root also those with nodes
	@if [ "$$(id -u)" = 0 ]; then $(MAKE) --no-print-directory assets-node >/dev/null; tools/setup engine; fi
	@$(MAKE) --no-print-directory -j2 bench test BENCHES=tombolo-benches BENCH_FLAGS=--quick TEST_ON_KIND="$(CI_E2E_TESTS)"

clean: ## remove the cache of builds and binaries
	rm -rf "$(TOMBOLO_CACHE)"
