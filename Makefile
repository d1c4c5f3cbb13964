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
# Test processes: three times as many as cores, because most tests wait for processes and deadlines.
# Python's development mode: asyncio checks that its loops are called in their own threads, which
# takes a tenth of the time. Without its debug allocator: `make sanitize` checks memory.
DEV_MODE := PYTHONDEVMODE=1 PYTHONMALLOC=pymalloc
# What each test cost, which a run of CI keeps.
COSTS ?= build/test-costs.tsv
PROCESSES ?= $(shell echo $$(( $$(nproc) * 3 )))
# The WebSocket conformance cases; Python 2 code, so it is fetched and translated, not installed.
AUTOBAHN := autobahntestsuite==25.10.1
# What checks the accessibility of the pages in Chromium.
AXE := axe-core@4.14.1
# Another implementation of protobuf, which judges binary updates.
PROTOBUFJS := protobufjs@8.8.1

.DEFAULT_GOAL := help
.PHONY: bench bench-quick check clean coverage demo help load mutations reference release-check sanitize \
	soak soak-accounts soak-crash soak-dev soak-fuzz soak-sockets soak-worlds test

help: ## list these commands
	@echo "Commands (each makes the environment $(VENV) that it needs):"
	@sed -n -E 's/^([a-z-]+):([^#=]*)## (.*)/  \1\t\3/p' $(MAKEFILE_LIST) | sort | expand -t 18

$(BIN)/.installed: pyproject.toml setup.py $(wildcard src/onebook/*/*.pyx src/onebook/*/*.pxd src/onebook/*/*.pxi src/onebook/*/*.h)
	@echo "[1/3] Making the environment $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@echo "[2/3] Installing Onebook: fetch dependencies, compile two extensions (less than a minute)"
	@set -o pipefail; $(BIN)/python -m pip install --verbose --progress-bar off --editable ".[server]" 2>&1 \
		| tee $(LOG) | sed -u -n $(PROGRESS) || { tail -n 40 $(LOG); exit 1; }
	@echo "[3/3] Installed; the whole log is in $(LOG)"
	@touch $@

$(BIN)/.installed-dev: $(BIN)/.installed
	@echo "Fetching the tools for tests and checks"
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --group dev --group judges
	-@$(BIN)/python -m pip download --quiet --no-deps --no-binary :all: --dest $(VENV)/autobahn $(AUTOBAHN)
	-@npm install --silent --no-audit --no-fund --prefix $(VENV)/axe $(AXE) $(PROTOBUFJS)
	@touch $@

demo: $(BIN)/.installed ## run the service with simulated exchanges on 127.0.0.1:8000
	$(BIN)/onebook demo

# Sockets, processes and clocks are real in many tests, and the machine may be busy. What fails beside
# other tests is run again alone and must pass there; either way it is printed and wants a fix.
# Hundreds of tests start processes; none should compile the source again.
test: export PYTHONDONTWRITEBYTECODE :=
test: $(BIN)/.installed-dev ## run the tests
	$(BIN)/python -m pytest --numprocesses=$(PROCESSES) --dist=worksteal --costs=$(COSTS) || { \
		echo "Failed beside other tests, so it is unsteady or wrong. Once more, alone:"; \
		$(BIN)/python -m pytest --numprocesses=0 -v --maxfail=1 \
			--last-failed --last-failed-no-failures=none; }

coverage: $(BIN)/.installed-dev ## print the lines and branches that no test runs
	$(BIN)/python -m pytest --numprocesses=$(PROCESSES) --dist=worksteal --cov --cov-report=term-missing

check: $(BIN)/.installed-dev ## run ruff, mypy --strict and import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file bench/mypy.ini
	$(BIN)/lint-imports

release-check: $(BIN)/.installed-dev ## build sdist and wheel, install and use each (QUICK=--quick)
	$(BIN)/python tests/release/check.py $(QUICK)

reference: $(BIN)/.installed-dev ## write docs/reference from the code and its tests
	$(BIN)/python tests/reference/write.py

bench: ## measure Onebook beside other libraries (in an environment of its own)
	$(PYTHON) bench/run.py

bench-quick: ## the same in one round, to see that every benchmark runs
	$(PYTHON) bench/run.py --quick

soak: soak-sockets soak-dev soak-fuzz soak-crash soak-worlds soak-accounts ## all long tests, one after the other (hours)

SOAK := ONEBOOK_AUTOBAHN=all ONEBOOK_BIG=1 $(DEV_MODE) $(BIN)/python -m pytest --numprocesses=$(PROCESSES)
soak-sockets: $(BIN)/.installed-dev ## what `make test` leaves out: all exchanges over sockets, Autobahn, axe
	$(SOAK) --dist=worksteal -m soak --costs=build/soak-costs.tsv

# Each command in a process that imports it (tests/preloaded.py), as a user starts it.
soak-dev: $(BIN)/.installed-dev ## the tests of `make test` in Python's development mode
	HYPOTHESIS_PROFILE=nightly $(DEV_MODE) $(BIN)/python -m pytest -p no:preloaded --numprocesses=$(PROCESSES) --dist=worksteal

soak-fuzz: $(BIN)/.installed-dev ## long fuzzing of every decoder, with a new seed
	ONEBOOK_FUZZ_INPUTS=20000 ONEBOOK_FUZZ_SWOLLEN=1000 ONEBOOK_FUZZ_HUGE=1 ONEBOOK_FUZZ_SEED=$$RANDOM ONEBOOK_FUZZ_PATIENCE_S=3600 \
		$(BIN)/python -m pytest -n0 -m "soak or not soak" --timeout=4000 -k "no_bytes or damaged" \
		tests/contract/test_fuzz.py tests/streams/test_packed.py

soak-crash: $(BIN)/.installed-dev ## kill a node at 200 points of time and count what was billed
	CRASH_POINTS=200 $(BIN)/python -m pytest -n0 -s -m "soak or not soak" tests/e2e/test_crash.py

soak-worlds: $(BIN)/.installed-dev ## 10,000 simulated worlds and baskets, 300 random swarms (SEEDS=0:10000)
	ONEBOOK_SEEDS=$(or $(SEEDS),0:10000) $(BIN)/python -m pytest --numprocesses=auto -m "soak or not soak" tests/proofs tests/streams/test_pooled.py
	ONEBOOK_SWARMS=300 ONEBOOK_SWARM_ACTS=300 $(BIN)/python -m pytest --numprocesses=auto -m "soak or not soak" tests/swarm

soak-accounts: $(BIN)/.installed-dev ## 400 random accounts of each exchange, from a new seed (SEED=7 repeats one)
	ONEBOOK_ACCOUNTS=$(or $(ACCOUNTS),400) ONEBOOK_ACCOUNTS_FROM=$(or $(SEED),$$RANDOM) $(BIN)/python -m pytest \
		--numprocesses=auto --dist=worksteal -m "soak or not soak" tests/transactions/kraken/test_random.py \
		tests/transactions/okx/test_random.py tests/transactions/okx/test_random_exports.py \
		tests/transactions/test_own_transfers.py tests/transactions/test_random_accounts.py

mutations: $(BIN)/.installed-dev ## put defects of the past back, one by one: each must fail its test (ONLY=name)
	$(BIN)/python tests/mutations.py $(ONLY)

load: $(BIN)/.installed-dev ## serve all exchanges, simulated, to 200 clients for 30 minutes (LOAD_S=1800); Ctrl-C prints the figures so far
	cc -O2 bench/macro/sink.c -o $(VENV)/sink
	BENCH_SINK=$(CURDIR)/$(VENV)/sink PYTHONPATH=bench $(BIN)/python bench/macro/crowd.py --seconds $(or $(LOAD_S),1800)

sanitize: $(BIN)/.installed-dev ## run the tests of compiled code under ASan and UBSan (about 145 s of CPU)
	bash tests/core/sanitize.sh

clean: ## remove environments and build products
	rm -rf $(VENV) .venv-* bench/.node build dist *.egg-info src/*.egg-info src/onebook/*/*.so src/onebook/*/*.c
