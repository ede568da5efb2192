PYTHON ?= python3
BIN := .venv/bin
# An environment with nothing but the base packages: .venv itself until the packages for the tests are in it.
BASE := $(if $(wildcard .venv/.dev),.venv-base,.venv)
# Without bytecode, each of the many processes of the tests would compile everything anew.
TESTS = env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help run base test check docs bench ui

help:  ## these lines
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

run: .venv/.base  ## set up on a fresh machine and run BM25 on the sample
	@$(BIN)/harness run $(ARGS)

base: $(BASE)/.base  ## run the documents' commands, and the hints that they print, where only the base packages are
	@$(BASE)/bin/python scripts/check_base.py $(ARGS)

test: .venv/.dev  ## set up on a fresh machine and pass the whole suite
	@$(TESTS) $(ARGS)

check: .venv/.dev  ## lint, types and the fast tests
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(TESTS) -m 'not slow' $(ARGS)

docs: .venv/.dev  ## build the documentation's site in outputs/site; ARGS=serve shows it at http://127.0.0.1:8000
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs $(or $(ARGS),build) -f scripts/site/mkdocs.yml

bench: .venv/.dev  ## measure against the libraries people use today, as ratios in one run
	@for what in bm25 metrics encode "encode --light" search; do $(BIN)/python scripts/benchmark.py $$what || exit 1; done

ui: .venv/.base  ## browse the runs in MLflow
	@$(BIN)/harness ui $(ARGS)

.venv/.base .venv-base/.base: pyproject.toml constraints.txt
	@PYTHON=$(PYTHON) scripts/setup.sh base $(@D)

.venv/.dev: pyproject.toml constraints.txt
	@PYTHON=$(PYTHON) scripts/setup.sh dev
