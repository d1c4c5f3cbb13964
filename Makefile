# The commands a person needs. Each makes what it needs; `make help` lists them.
SHELL  := bash
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
LOG    := $(VENV)/install.log
# Of pip's long log, the lines that show how far it is.
PROGRESS = -e 's/^ *Collecting \([A-Za-z0-9._-]*\).*/      fetch   \1/p' \
           -e "s/^ *building '\([a-z._]*\)' extension.*/      compile \1/p" \
           -e 's/^ *Installing collected packages:.*/      install packages/p'
# Test processes: half as many again as cores, because many tests wait for processes and deadlines.
DEV_MODE := PYTHONDEVMODE=1 PYTHONMALLOC=pymalloc
# What each test cost, which a run of CI keeps.
COSTS ?= build/test-costs.tsv
PROCESSES ?= $(shell echo $$(( ($$(nproc) * 3 + 1) / 2 )))
# The WebSocket conformance cases; Python 2 code, so it is fetched and translated, not installed.
AUTOBAHN := autobahntestsuite==25.10.1
# What checks the accessibility of the pages in Chromium.
AXE := axe-core@4.14.1

.DEFAULT_GOAL := help
.PHONY: help demo test coverage soak check release-check reference bench load sanitize clean

help: ## what can be done
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(BIN)/.installed: pyproject.toml setup.py $(wildcard src/onebook/*/*.pyx src/onebook/*/*.pxd src/onebook/*/*.pxi src/onebook/*/*.h)
	@echo "[1/3] Making the environment $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@echo "[2/3] Installing Onebook: fetch dependencies, compile two extensions (about a minute)"
	@set -o pipefail; $(BIN)/python -m pip install --verbose --progress-bar off --editable ".[server]" 2>&1 \
		| tee $(LOG) | sed -u -n $(PROGRESS) || { tail -n 40 $(LOG); exit 1; }
	@echo "[3/3] Installed; the whole log is in $(LOG)"
	@touch $@

$(BIN)/.installed-dev: $(BIN)/.installed
	@echo "Fetching the tools for tests and checks"
	@$(BIN)/python -m pip install --quiet --group dev --group judges
	-@$(BIN)/python -m pip download --quiet --no-deps --no-binary :all: --dest $(VENV)/autobahn $(AUTOBAHN)
	-@npm install --silent --no-audit --no-fund --prefix $(VENV)/axe $(AXE)
	@touch $@

demo: $(BIN)/.installed ## the service with simulated exchanges on 127.0.0.1:8000
	$(BIN)/onebook demo

# Sockets, processes and clocks are real in many tests, and the machine may be busy. What fails beside
# other tests is run again alone and must pass there; either way it is printed and wants a fix.
# Hundreds of tests start processes; none should compile the source again.
test: export PYTHONDONTWRITEBYTECODE :=
# Without dev mode's debug allocator, which takes a fifth of the time: `make sanitize` checks memory.
test: $(BIN)/.installed-dev ## the whole test suite
	$(DEV_MODE) $(BIN)/python -m pytest --numprocesses=$(PROCESSES) --dist=worksteal --costs=$(COSTS) || { \
		echo "Failed beside other tests, so it is unsteady or wrong. Once more, alone:"; \
		$(DEV_MODE) $(BIN)/python -m pytest --numprocesses=0 -v --maxfail=1 \
			--last-failed --last-failed-no-failures=none; }

coverage: $(BIN)/.installed-dev ## the lines and branches that the tests leave uncovered
	$(BIN)/python -m pytest --numprocesses=$(PROCESSES) --dist=worksteal --cov --cov-report=term-missing

check: $(BIN)/.installed-dev ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

release-check: $(BIN)/.installed-dev ## build sdist and wheel, install and use each (QUICK=--quick)
	$(BIN)/python tests/release/check.py $(QUICK)

reference: $(BIN)/.installed-dev ## write docs/reference from the code and its tests
	$(BIN)/python tests/reference/write.py

bench: ## ours beside the peers, one run, ratios; peers get an environment of their own
	$(PYTHON) bench/run.py

soak: $(BIN)/.installed-dev ## the long runs: fuzzing, 200 crash points, 10,000 simulated worlds (SEEDS=0:10000)
	ONEBOOK_FUZZ_INPUTS=20000 ONEBOOK_FUZZ_SWOLLEN=1000 ONEBOOK_FUZZ_SEED=$$RANDOM ONEBOOK_FUZZ_PATIENCE_S=3600 \
		$(BIN)/python -m pytest -n0 tests/contract/test_fuzz.py
	CRASH_POINTS=200 $(BIN)/python -m pytest -n0 -s tests/e2e/test_crash.py
	ONEBOOK_SEEDS=$(or $(SEEDS),0:10000) $(BIN)/python -m pytest --numprocesses=auto tests/proofs
	ONEBOOK_SWARMS=300 ONEBOOK_SWARM_ACTS=300 $(BIN)/python -m pytest --numprocesses=auto tests/swarm

load: $(BIN)/.installed-dev ## every exchange, simulated, beside 200 clients for 30 minutes (LOAD_S=1800)
	cc -O2 bench/macro/sink.c -o $(VENV)/sink
	BENCH_SINK=$(CURDIR)/$(VENV)/sink PYTHONPATH=bench $(BIN)/python bench/macro/crowd.py --seconds $(or $(LOAD_S),1800)

sanitize: $(BIN)/.installed-dev ## the tests of what is compiled, under ASan and UBSan
	bash tests/core/sanitize.sh

clean: ## remove environments and build products
	rm -rf $(VENV) .venv-* bench/.node build dist *.egg-info src/*.egg-info src/onebook/*/*.so src/onebook/*/*.c
