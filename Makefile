# Two commands set everything up on a fresh machine with Python 3.11+, git and make:
#   make tune    installs Draftmark, fetches a real engine and a small real model, and tunes it
#   make test    installs what the tests need, and runs them
#   make explore after them: the property tests with examples that were never tried; a failure prints how to repeat it
#   make score   after one of them: names the causes of labelled deaths, and counts (CORPUS=DIR, ARGS=--all)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
CORPUS ?= ../shared/corpus

.PHONY: tune test explore check format bench score clean

# Exit status 10 says that something better was found; here that is a success.
tune: $(VENV)/.installed
	@$(BIN)/draftmark tune $(ARGS); status=$$?; [ $$status -eq 10 ] || exit $$status

test: check
	$(BIN)/python tests/coverage_gate.py

explore: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m hypothesis --hypothesis-profile explore --numprocesses 2 $(ARGS)

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check src tests bench
	$(BIN)/ruff check src tests bench
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff format src tests bench
	$(BIN)/ruff check --fix src tests bench

bench: $(VENV)/.installed
	$(BIN)/python bench/startup.py

score: $(VENV)/.installed
	$(BIN)/python -m bench.score $(CORPUS) $(ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Draftmark needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	@echo "installing Draftmark into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@$(BIN)/python -m compileall -q src/draftmark
	@touch $@

$(VENV)/.installed-dev: pyproject.toml requirements-dev.txt $(VENV)/.installed | $(VENV)/bin/python
	@echo "installing what the tests need …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements-dev.txt
	@touch $@
