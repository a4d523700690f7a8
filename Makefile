# Every target makes the environment it needs; the only thing to have first is Python 3.11 or newer.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamp
PEERS  := $(VENV)-peers

.PHONY: demo test check test-lowest bench peers clean
.DEFAULT_GOAL := test

demo: $(STAMP)-demo
	$(BIN)/fedopl demo demo

check: $(STAMP)-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Files of tests share the cores, so each gets by with one thread of linear algebra.
test: check
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile

# The oldest dependencies pyproject.toml admits, in an environment of their own.
test-lowest:
	$(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/pip install --quiet --upgrade "pip>=25.1"
	$(VENV)-lowest/bin/pip install --quiet --constraint tests/lowest.txt --group test --editable .
	$(VENV)-lowest/bin/pytest

bench: $(STAMP)-bench
	$(BIN)/python benchmarks/federation.py --write
	$(BIN)/python benchmarks/flower.py --write
	$(BIN)/python benchmarks/reproduction.py --write
	$(BIN)/python benchmarks/scores.py --write
	PEERS_PYTHON=$$(command -v $(PEERS)/bin/python) $(BIN)/python benchmarks/trees.py --write

# Other people's tree searches, for `make bench` to compare with; without them they are called absent.
peers: $(PEERS)/.stamp

$(STAMP):
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedopl needs Python 3.11 or newer; try make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade "pip>=25.1"
	touch $@

$(STAMP)-demo: $(STAMP) pyproject.toml
	$(BIN)/pip install --quiet --editable .
	touch $@

$(STAMP)-test: $(STAMP) pyproject.toml
	$(BIN)/pip install --quiet --group test --group check --editable .
	touch $@

$(STAMP)-bench: $(STAMP) pyproject.toml
	$(BIN)/pip install --quiet --group bench --editable .
	touch $@

$(PEERS)/.stamp: pyproject.toml
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --upgrade "pip>=25.1"
	$(PEERS)/bin/pip install --quiet --group peers
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-lowest $(PEERS) demo .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
