# Every target makes the environment it needs; the only thing to have first is Python 3.11 or newer.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamp
BENCH  := $(VENV)-bench
PEERS  := $(VENV)-peers
SCRIPTS := peers policies budgets intervals privacy secure stages sgd kernels scores wide bending trees grids clients crowds plans grouped_plans federation memory scale startup busy transports soak reproduction
RESULTS := $(if $(QUICK),$(BENCH)/quick,benchmarks/results)

.PHONY: demo docs test laws check lint types layers format ci coverage test-lowest dist release constraints bench peers clean
.DEFAULT_GOAL := test

demo: $(STAMP)-demo
	$(BIN)/fedopl demo demo

# The site, in build/docs/html; a link or an anchor that leads nowhere is an error.
docs: $(STAMP)-docs
	$(BIN)/python website/build_site.py

check: lint types layers

lint: $(STAMP)-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)-test
	$(BIN)/mypy

layers: $(STAMP)-test
	$(BIN)/lint-imports --no-cache

# What ruff can mend by itself.
format: $(STAMP)-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Files of tests share the cores, so each gets by with one thread of linear algebra and of boosting.
# One file more than there are cores runs at a time: those about federations mostly wait.
# They start in the order of tests/conftest.py, longest first. Modules are compiled once, as many
# tests start processes that import them.
WORKERS = $$($(PYTHON) -c "import os; print(os.cpu_count() + 1)")
PYTEST  = OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= \
  $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
test: check
	$(PYTEST)

# Laws that take long: many draws, long federations, runs killed at many points. Of each, `make test`
# tries something quick.
laws: $(STAMP)-test
	$(PYTEST) -m slow_law

# What continuous integration runs: all tests, with a browser to look at reports in.
ci:
	.ci/run

# Lines and branches that the tests reach, by room; it fails where a room that guards rows has gaps.
coverage: $(STAMP)-coverage
	$(PYTEST) --cov --cov-report json
	$(BIN)/python experiments/coverage_by_room.py

# The oldest dependencies pyproject.toml admits, in an environment of their own.
test-lowest:
	$(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/pip install --quiet --upgrade "pip>=25.1"
	$(VENV)-lowest/bin/pip install --quiet --constraint tests/lowest.txt --group test --editable .
	$(VENV)-lowest/bin/pytest

# What is published, built from a clean copy; with TAG, which must be the version's.
dist: $(STAMP)-dist
	$(if $(TAG),grep -q '^version = "$(TAG:v%=%)"$$' pyproject.toml)
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

# The same, met as a user would: installed in bare environments, its demo run, its parts listed.
release: dist
	PYTHON=$(PYTHON) .ci/release

# The versions of a deployment, with hashes; after a dependency changed, and before a release.
constraints: $(STAMP)-dist
	$(BIN)/uv pip compile pyproject.toml --extra flower --extra https --universal --python-version 3.11 --upgrade \
	  --generate-hashes --no-emit-index-url --quiet --custom-compile-command "make constraints" \
	  --output-file deploy/constraints.txt

# Every table and chart of benchmarks/README.md; `make bench QUICK=--quick` tries it in minutes.
bench: $(BENCH)/.stamp peers
	mkdir -p $(RESULTS)
	for script in $(SCRIPTS); do echo "== $$script"; $(BENCH)/bin/python benchmarks/$$script.py $(QUICK) --out $(RESULTS) || exit 1; done
	$(if $(QUICK),,$(BENCH)/bin/python benchmarks/readme.py)

# Other people's learners, each in an environment of its own; one that cannot be had is called absent.
peers:
	$(PYTHON) benchmarks/environments.py $(PEERS)

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

$(STAMP)-docs: $(STAMP) pyproject.toml
	$(BIN)/pip install --quiet --group docs --editable .
	touch $@

$(STAMP)-coverage: $(STAMP)-test
	$(BIN)/pip install --quiet --group coverage
	touch $@

$(STAMP)-dist: $(STAMP) pyproject.toml
	$(BIN)/pip install --quiet --group dist
	touch $@

$(BENCH)/.stamp: pyproject.toml
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/pip install --quiet --upgrade "pip>=25.1"
	$(BENCH)/bin/pip install --quiet --group bench --editable .
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-lowest $(BENCH) $(PEERS) demo .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage* coverage.json build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
