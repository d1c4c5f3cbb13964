# The commands a person needs. Each makes what it needs; `make help` lists them.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test check bench sanitize clean

help: ## what can be done
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BIN)/.installed: pyproject.toml setup.py $(wildcard src/onebook/*/*.pyx src/onebook/*/*.pxd src/onebook/*/*.pxi src/onebook/*/*.h)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(BIN)/.installed-dev: $(BIN)/.installed
	$(BIN)/python -m pip install --quiet --group dev --group judges
	touch $@

demo: $(BIN)/.installed ## the service with simulated exchanges on 127.0.0.1:8000
	$(BIN)/onebook demo

test: $(BIN)/.installed-dev ## the whole test suite, with coverage
	PYTHONDEVMODE=1 $(BIN)/python -m pytest --numprocesses=auto --cov --cov-report=term

check: $(BIN)/.installed-dev ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: ## ours beside the peers, one run, ratios; peers get an environment of their own
	$(PYTHON) bench/run.py

sanitize: $(BIN)/.installed-dev ## the tests of what is compiled, under ASan and UBSan
	bash tests/core/sanitize.sh

clean: ## remove environments and build products
	rm -rf $(VENV) .venv-* bench/.node build dist *.egg-info src/*.egg-info src/onebook/*/*.so src/onebook/*/*.c
