# Every target makes the environment it needs: .venv-<version>, one for each interpreter.
#
#   make test                       with the default interpreter
#   make test PYTHON=python3.13     with another one, and so with the other supported PyMC and ArviZ
#   make test ARGS="-k center -x"   further arguments for the command that is run

PYTHON ?= python3
ARGS ?=

asks_version = $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
VERSION := $(shell $(asks_version))
ifeq ($(VERSION),)
# pyenv answers to python3.13 only while a 3.13 is active: activate all that are installed.
export PYENV_VERSION := $(shell pyenv versions --bare 2>/dev/null | grep -E '^3\.[0-9]+\.[0-9]+$$' | paste -sd: -)
VERSION := $(shell PYENV_VERSION=$(PYENV_VERSION) $(asks_version))
endif

VENV := .venv-$(VERSION)
BIN := $(VENV)/bin
# One worker a core, two to eight; each compiles for itself, so a file's tests stay together.
WORKERS ?= $(shell $(BIN)/python -c 'import os; print(min(8, max(2, os.cpu_count() or 2)))')

schema = $(BIN)/check-jsonschema --builtin-schema vendor.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test coverage lint format docs notebooks benchmark accuracy clients dist clean

help:  ## show the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 12

demo: $(VENV)/.has-test  ## sample a logistic regression of 200,000 rows and draw a figure
	$(BIN)/python examples/demo.py $(ARGS)

test: $(VENV)/.has-test  ## run the tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

coverage: $(VENV)/.has-test  ## run the tests, then say which lines none of them reached
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --cov --cov-report= $(ARGS)
	$(BIN)/python -m coverage report

lint: $(VENV)/.has-dev  ## check style, formatting, types, which folder imports which, and settings of other services
	$(BIN)/ruff check $(ARGS) .
	$(BIN)/ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-cache
	$(schema)github-workflows .github/workflows/*.yml
	$(schema)github-actions .github/actions/*/action.yml
	$(schema)github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/feature.yml
	$(schema)github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(schema)dependabot .github/dependabot.yml
	$(schema)readthedocs .readthedocs.yaml
	$(schema)citation-file-format CITATION.cff

format: $(VENV)/.has-dev  ## repair style and formatting
	$(BIN)/ruff check --fix $(ARGS) .
	$(BIN)/ruff format .

docs: $(VENV)/.has-docs  ## build the documentation into docs/_build/html; a warning is an error
	$(BIN)/python -m sphinx -W --keep-going -E -q -b html $(ARGS) docs docs/_build/html
	@echo "open docs/_build/html/index.html"

notebooks: $(VENV)/.has-notebooks  ## run every notebook of examples/ from start to end, at a small scale
	out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && ls examples/*.ipynb | SGCV_SCALE=quick xargs -P 2 -n 1 \
	    $(BIN)/python -m nbconvert --to notebook --execute --output-dir "$$out" --log-level WARN $(ARGS)

benchmark: $(VENV)/.has-test  ## measure speed
	$(BIN)/python -m tests.benchmarks $(ARGS)

accuracy: $(VENV)/.has-test  ## compare with NUTS on many kinds of model
	$(BIN)/python -m tests.accuracy $(ARGS)

clients: $(VENV)/.has-clients  ## build models as other packages do, and sample them
	$(BIN)/python -m tests.clients $(ARGS)

dist: $(VENV)/.has-release  ## build what goes to PyPI into dist/, and check it
	rm -rf dist
	$(BIN)/python -m build $(ARGS)
	$(BIN)/python -m twine check --strict dist/*

clean:  ## remove environments, caches and everything built
	rm -rf .venv-* build dist docs/_build docs/examples .mypy_cache .pytest_cache .ruff_cache .coverage* *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The package, editable, with one of its extras; again whenever pyproject.toml changes.
# uv installs several times faster than pip, which takes over where uv cannot be had.
$(VENV)/.has-%: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "pymc-sgcv needs Python 3.11 or newer, and '$(PYTHON)' is $(or $(VERSION),not there)." \
	         "Name another interpreter: make $(MAKECMDGOALS) PYTHON=python3.13" >&2; exit 1; }
	test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m uv --version >/dev/null 2>&1 || $(BIN)/python -m pip install --quiet uv || true
	$(BIN)/python -m uv pip install --python $(BIN)/python -e '.[$*]' \
	    || $(BIN)/python -m pip install -e '.[$*]'
	@touch $@
