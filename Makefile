# SPDX-License-Identifier: Apache-2.0
# A thin front of meson and scripts/. `make help` lists the targets.
BUILD = build/release
PREFIX = /usr/local
MAKEFLAGS += --no-print-directory

.PHONY: all help guest deps deps-build demo test bench bench-full bench-page fuzz lint coverage install deb clean
all: deps-build ## build the programs, the library and the man pages (release) in build/release
	@scripts/configure.sh $(BUILD) $(PREFIX)
	@ninja -C $(BUILD) programs

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 14

deps: ## install what scripts/packages.list names and this machine lacks
	@scripts/install-deps.sh

deps-build: ## the same without what only the tests need
	@scripts/install-deps.sh --build

demo: all ## run the test suite of a third-party package in a sandbox, and show the verified result
	@scripts/demo.sh

test: guest deps ## lint, all suites under ASan and UBSan, release, valgrind, leftovers; LANES='lint asan' for a part
	@scripts/test.sh $(LANES)

guest:
	@scripts/guest.sh before build/guest.before

bench: all ## measure everything beside its peers, about 10 minutes; writes build/bench.json
	@scripts/bench.sh

bench-full: all ## the same with more rounds and larger inputs
	@scripts/bench.sh --full

bench-page: ## put build/bench.json into docs/PERFORMANCE.md and its charts into docs/bench
	@bench/page.py

fuzz: deps ## fuzz each parser for FUZZ_SECONDS (60) with clang's libFuzzer
	@scripts/fuzz.sh

lint: deps ## arrows, sizes, headers, licence lines
	@scripts/lint.py

coverage: deps ## unit tests with counters; page in build/coverage/html
	@scripts/coverage.sh

install: all ## install below PREFIX (/usr/local); DESTDIR is honoured
	@DESTDIR="$(DESTDIR)" meson install -C $(BUILD) --no-rebuild

deb: deps-build ## Debian packages, in build/deb
	@scripts/deb.sh

clean: ## remove build
	@rm -rf build
