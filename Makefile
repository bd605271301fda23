# Everything a bare machine needs: Python 3.11 or newer, make, and the package registry.
PYTHON ?= python3
# Cases of a function that `make verify` runs, or all: make verify CASES=all
CASES ?= 6
# A lane whose tests ran already: make verify WITHOUT=test
WITHOUT ?=
# A part of a lane: make test TESTS=tests/ledger
TESTS ?=
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
LEAN := $(VENV)/.lean
READY := $(VENV)/.ready
PEERS := $(VENV)/.peers
DOCS := $(VENV)/.docs
DIST := $(VENV)/.dist
DIFFPRIVLIB := build/diffprivlib
# uv installs in seconds what takes pip minutes; it trusts the certificates that the machine does.
INSTALL := $(UV) pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable
export UV_SYSTEM_CERTS := true
PYTEST := $(BIN)/python -m pytest --dist worksteal

# What python compiles of the tests' sources it keeps, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check verify lint audit faults bench scale rivals flights panel widths notebooks docs dist clean

# Installs what a release and a picture need, unless everything is there already.
demo: $(if $(wildcard $(READY)),$(READY),$(LEAN))
	$(BIN)/dbern demo

# Two cases of each quick test, planted bugs, kills, kept integers, hostile stores: three minutes.
test: $(READY)
	$(PYTEST) -n auto --lane test $(TESTS)

check: lint test

# Six cases of each test, by turns from commit to commit: a quarter of an hour.
verify: lint
	$(PYTEST) -n auto --lane verify --cases $(CASES) $(WITHOUT:%=--without %) --durations 10 $(TESTS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Each mutation of docs/audit.md, planted in a copy, must be killed: make audit AUDIT='--only calibration'
audit: $(READY)
	cd tests && ../$(BIN)/python -m audit $(AUDIT)

# A release struck at every point that an undisturbed one passes, and a stream at 200 of any: hundreds, minutes.
faults: $(READY)
	DBERN_FAULTS=all $(PYTEST) -n auto -o faulthandler_timeout=0 --timeout 0 -q tests/faults/test_faults.py tests/faults/test_secrets.py tests/run/test_stream_nights.py::test_kills_at_any_call_leave_one_charge_the_same_bytes_and_no_key

# Accuracy and speed, beside other libraries; writes docs/benchmarks.md. Speed alone: make bench BENCH='-k speed'
bench: $(PEERS)
	DBERN_REPEATS=1000 $(BIN)/python -m pytest -o faulthandler_timeout=0 --timeout 0 -q -s tests/benchmarks $(BENCH)

# Scaling in docs/benchmarks.md, and its curves; one large release: make scale SCALE='--rows 100000000 --folder /somewhere',
# or one of many files: make scale SCALE='--files 100000'
scale: $(READY)
	PYTHONPATH=benchmarks $(BIN)/python -m scale $(SCALE)

# Densities, learners and curves beside other mechanisms and diffprivlib, and where one of them is
# ahead; some of it alone: make rivals RIVALS='--part linear bayes --epsilon 1 --seeds 5'
rivals: $(READY) $(DIFFPRIVLIB)/.ready
	PYTHONPATH=benchmarks $(BIN)/python -m rivals $(RIVALS)

# Private beside non-private on real data, which is not in this repository: make flights FLIGHTS='--rows 8000'
flights: $(READY)
	PYTHONPATH=benchmarks $(BIN)/python -m flights $(FLIGHTS)

# Densities beside what is easily written instead; FOLDER holds real records: make panel FOLDER=../shared/data
panel: $(READY)
	PYTHONPATH=benchmarks $(BIN)/python -m panel $(FOLDER) $(PANEL)

# Widths that follow from rows and epsilon, beside fixed ones: make widths WIDTHS='--part classes'
widths: $(READY)
	PYTHONPATH=benchmarks $(BIN)/python -m widths $(WIDTHS)

# Runs them again in place, with the README's pictures; one alone: make notebooks NOTEBOOKS=tour
notebooks: $(READY)
	$(BIN)/python tests/execution.py $(NOTEBOOKS)

# build/docs/site/index.html: every page, the API and the notebooks; opens and searches without a network
docs: $(DOCS)
	$(BIN)/python docs/site/build.py

# dist/: wheel, sdist and the bill of materials, with their digests, checked
dist: $(DIST)
	$(BIN)/python deploy/dist.py
	$(BIN)/python -m pytest -q tests/test_wheel.py

$(UV):
	$(PYTHON) -c 'import sys; sys.exit("dbern needs Python 3.11 or newer: make PYTHON=python3.12 ..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	touch $@

$(LEAN): $(UV) pyproject.toml constraints.txt
	$(INSTALL) '.[report]'
	touch $@

$(READY): $(UV) pyproject.toml constraints.txt
	$(INSTALL) '.[dagster,hpc,k8s,postgres,report,s3,test]'
	touch $@

$(PEERS): $(READY)
	$(INSTALL) '.[bench]'
	touch $@

# An environment of its own, for the scikit-learn that it needs; the tables say so where it fails.
$(DIFFPRIVLIB)/.ready: benchmarks/diffprivlib.txt
	rm -rf $(DIFFPRIVLIB)
	-$(PYTHON) -m venv $(DIFFPRIVLIB) && \
	$(DIFFPRIVLIB)/bin/python -m pip install --quiet --requirement $< && touch $@

$(DOCS): $(READY)
	$(INSTALL) '.[docs]'
	touch $@

$(DIST): $(READY)
	$(INSTALL) '.[dist]'
	touch $@

clean:
	rm -rf $(VENV) build dist demo-out scale-out .mypy_cache .ruff_cache .pytest_cache .hypothesis
