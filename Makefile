# The daily tool: `make help` says what there is. Everything runs in .venv, which `make setup` makes.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Two workers fit the smallest machine that CI uses; PYTEST_ARGS adds options of your own.
WORKERS ?= 2
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup quickstart test test-cluster test-fuzz fuzz lint format generate drift check bench clean

help: ## Print this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/kthena: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml $(BIN)/kthena
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

setup: $(VENV)/.dev ## Make .venv with everything that tests and lint need

quickstart: $(BIN)/kthena ## Run examples/quickstart on this machine, ask it one question, print the answer
	@$(BIN)/kthena up -k examples/quickstart --port 0 -- sh examples/quickstart/ask.sh

test: setup ## Run the tests that need Python only
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "not cluster" $(PYTEST_ARGS)

test-cluster: setup ## Build (once) and start a real control plane, and run the tests that need it
	$(BIN)/python tests/controlplane/build.py
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "cluster and not fuzz" $(PYTEST_ARGS)

test-fuzz: setup ## Compare a fixed and a fresh series of operations on the embedded server and a real one
	$(BIN)/python tests/controlplane/build.py
	$(BIN)/pytest -m fuzz $(PYTEST_ARGS)

OPERATIONS ?= 200000
SEED ?=

fuzz: setup ## Compare OPERATIONS operations on the embedded server and a real one, from SEED on or a fresh seed
	$(BIN)/python tests/controlplane/build.py
	PYTHONPATH=tests $(BIN)/python -m fuzz --operations $(OPERATIONS) $(if $(SEED),--seed $(SEED))

lint: setup ## Check format, lint, types and architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## Format the code and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

generate: setup ## Write generated files: CRDs, references
	$(BIN)/python tools/gen_crds.py
	$(BIN)/python tools/gen_field_report.py
	$(BIN)/python tools/gen_cli.py

check: lint drift test ## Everything that needs Python only: lint, generated files, tests

drift: setup ## Fail when a generated file is stale
	$(BIN)/python tools/gen_crds.py --check
	$(BIN)/python tools/gen_field_report.py --check
	$(BIN)/python tools/gen_cli.py --check

bench: setup ## Run the benchmarks in smoke mode
	$(BIN)/python benchmarks/run.py --smoke

clean: ## Remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
