# Everything a bare machine needs: Python 3.11 or newer, make, and the package registry.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MADE := $(VENV)/.made
LEAN := $(VENV)/.lean
READY := $(VENV)/.ready
PEERS := $(VENV)/.peers
DOCS := $(VENV)/.docs
DIST := $(VENV)/.dist
DIFFPRIVLIB := build/diffprivlib

# What python compiles of the tests' sources it keeps, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check audit faults bench scale rivals flights panel widths notebooks docs dist clean

# Installs what a release and a picture need, unless everything is there already.
demo: $(if $(wildcard $(READY)),$(READY),$(LEAN))
	$(BIN)/dbern demo

test: $(READY)
	$(BIN)/python -m pytest -n auto --dist worksteal

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

# Each mutation of docs/audit.md, planted in a copy, must be killed: make audit AUDIT='--only calibration'
audit: $(READY)
	cd tests && ../$(BIN)/python -m audit $(AUDIT)

# A release struck at every point that an undisturbed one passes, and a stream at 200 of any: hundreds, minutes.
faults: $(READY)
	DBERN_FAULTS=all $(BIN)/python -m pytest -o faulthandler_timeout=0 -q -n auto --dist worksteal tests/faults/test_faults.py tests/faults/test_secrets.py tests/releasing/test_stream_nights.py::test_kills_at_any_call_leave_one_charge_the_same_bytes_and_no_key

# Accuracy and speed, beside other libraries; writes docs/benchmarks.md. Speed alone: make bench BENCH='-k speed'
bench: $(PEERS)
	DBERN_REPEATS=1000 $(BIN)/python -m pytest -o faulthandler_timeout=0 -q -s tests/benchmarks $(BENCH)

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

$(MADE):
	$(PYTHON) -c 'import sys; sys.exit("dbern needs Python 3.11 or newer: make PYTHON=python3.12 ..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(LEAN): $(MADE) pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[report]'
	touch $@

$(READY): $(MADE) pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dagster,hpc,k8s,postgres,report,s3,test]'
	touch $@

$(PEERS): $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	touch $@

# An environment of its own, for the scikit-learn that it needs; the tables say so where it fails.
$(DIFFPRIVLIB)/.ready: benchmarks/diffprivlib.txt
	rm -rf $(DIFFPRIVLIB)
	-$(PYTHON) -m venv $(DIFFPRIVLIB) && \
	$(DIFFPRIVLIB)/bin/python -m pip install --quiet --requirement $< && touch $@

$(DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

$(DIST): $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dist]'
	touch $@

clean:
	rm -rf $(VENV) build dist demo-out scale-out .mypy_cache .ruff_cache .pytest_cache .hypothesis
