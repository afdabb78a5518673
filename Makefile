# The commands of this project. A fresh clone needs only Python 3.11, 3.12 or 3.13; everything else goes into .venv.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

# Tests start hundreds of Python processes: without bytecode on disk each would read the whole package anew, for five seconds.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-tvm check bench fuzz clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    read the text in a picture with two compiled networks, and race ONNX Runtime"
	@echo "make test    the whole test suite"
	@echo "make test-tvm TVM=FOLDER  the tests and tutorials of TVM v0.13 in FOLDER that pass, and fail if one no longer does"
	@echo "make check   style, types and the core of the suite: before every change"
	@echo "make bench   speed and compile time beside ONNX Runtime and OpenVINO (MODELS=\"resnet50 bert_base\" for some)"
	@echo "make fuzz    random programs against two references, for MINUTES=10; findings go to fuzz-found/ (docs/fuzzing.md)"
	@echo "make clean   delete what the above wrote"

demo: .venv/ready-demo
	cd examples && ../$(BIN)/python -m ocr_demo --out ../build-out

test: .venv/ready-test
	$(BIN)/python -m pytest -n 2

# FOLDER has TVM's `gallery` and `python`, the latter being its tests. DATA is what benchmarks/tvm_data.py wrote.
DATA ?= $(HOME)/.tvm_test_data
test-tvm: .venv/ready-test
	@test -n "$(TVM)" || { echo "make: say TVM=FOLDER, the folder with TVM's gallery and tests" >&2; exit 1; }
	TEST_DATA_ROOT_PATH=$(DATA) TORCH_HOME=$(DATA)/torch $(BIN)/python benchmarks/tvm_suite.py $(TVM) \
		--expected benchmarks/tvm_passing.txt --jobs 2 --limit 200 --minutes 36

check: .venv/ready-test
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 -m core

bench: .venv/ready-bench
	$(BIN)/python benchmarks/compare.py $(MODELS)
	$(BIN)/python benchmarks/compile_time.py $(MODELS)

MINUTES ?= 10
fuzz: .venv/ready-fuzz
	cd tests && PYTHONPATH=. ../$(BIN)/python -m fuzz --minutes $(MINUTES)

clean:
	rm -rf .venv build-out fuzz-found dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11, 3.12 or 3.13 with the venv module found; install one or say make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv .venv

# One stamp for each set of optional packages: done once, and again when the list of packages changes.
.venv/ready-%: pyproject.toml | .venv/bin/python
	$(PIP) --editable '.[$*]'
	@touch $@
