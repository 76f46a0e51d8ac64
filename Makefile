# Two commands do all the set-up: `make demo` and `make test`. Each makes .venv by itself.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-gpu coverage setup format check docs docs-check bench clean

# Debian's packages by tags on Debian, else the planted corpus: other systems' apt has no tags.
DEMO ?= $(shell grep -qsx 'ID=debian' /etc/os-release && echo debtags || echo synthetic)

demo: .venv/.core  ## the whole line on real documents, ending with predictions
	$(BIN)/match-graph run $(DEMO) --overwrite --out runs/demo

test: .venv/.dev  ## all tests
	$(BIN)/pytest

test-gpu: .venv/.dev  ## the tests that need a CUDA device, which `make test` hides
	MATCH_GRAPH_TEST_GPU=1 $(BIN)/pytest -m gpu

coverage: .venv/.dev  ## all tests, and which lines of the package they run; half as long again
	$(BIN)/pytest --cov=match_graph --cov-report=term-missing:skip-covered --cov-fail-under=94

setup: .venv/.dev  ## a development environment in .venv

format: .venv/.dev  ## rewrite the code in the project's format
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

check: .venv/.dev  ## what CI checks besides the tests: lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Warnings are errors: a broken reference fails the build.
SPHINX := $(BIN)/python -m sphinx -W --keep-going -q -j 2 -b html

docs: .venv/.docs  ## the documentation site in docs/_build/html; runs every example
	$(SPHINX) docs docs/_build/html

docs-check: .venv/.docs  ## what CI checks of the site: all of it, without running the examples
	$(SPHINX) -D plot_gallery=0 docs docs/_build/check

# What `make bench` runs.
EXPERIMENT ?= experiments/comparison.yaml

bench: .venv/.dev  ## an experiment: every row with three seeds, its tables and figures
	$(BIN)/match-graph benchmark $(EXPERIMENT) --dataset $(DEMO)

clean:  ## remove the environment and what the tools left
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .coverage *.egg-info docs/_build docs/generated

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "match-graph needs Python 3.11 or newer; set PYTHON=/path/to/python3.11.")'
	$(PYTHON) -m venv .venv

# torch is installed by its exact version first: a range would let pip look past the CPU build.
.venv/.core: .venv/bin/python setup.py constraints.txt
	$(PIP) $$(grep '^torch==' constraints.txt)
	$(PIP) --editable .
	touch $@

.venv/.dev: .venv/.core
	$(PIP) --editable '.[dev]'
	touch $@

.venv/.docs: .venv/.core
	$(PIP) --editable '.[docs]'
	touch $@
