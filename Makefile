# Holdfast: everything a developer runs. `make` alone lists the targets.
#
# All of it lives in .venv. A stamp file per set of packages says what is installed there and
# is older than pyproject.toml when that has changed, so nothing is installed twice.
# With another Python beside it: `make test PYTHON=python3.13 VENV=.venv/python3.13`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH_ARGS ?=
QUICK ?=
MINUTES ?= 20
ONLY ?=
# Tests wait about as much as they work: twice as many at a time as there are cores.
JOBS ?= 4
REPORTS := .pytest_cache/reports
SPHINX = $(BIN)/python -m sphinx -q -W -n --keep-going -d build/doctrees
PYTEST = $(BIN)/python -m pytest --quiet
PARALLEL := --numprocesses $(JOBS) --dist worksteal
# What measures takes off the time that others had the cores, and mostly waits.
MEASURING := --numprocesses $(JOBS) --dist loadgroup
COMPILED := $(REPORTS)/compiled

SCRIPTS := tests/pipeline/idempotency/test_keyed_never_twice.py
SOAK := tests/faults/test_hand_off_load.py

# Compiled files are kept, whatever the caller prefers: without them each test that starts a
# process waits for a second more, and each worker rewrites the assertions of all tests.
unexport PYTHONDONTWRITEBYTECODE

ifneq ($(shell command -v uv 2>/dev/null),)
  INSTALL := uv pip install --quiet --python $(BIN)/python
else
  INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
endif

# In CI every package has the version and the hash of the lock; elsewhere what pyproject.toml allows.
ifeq ($(CI),true)
  DEV_LOCK := requirements-dev.lock
  INSTALL_DEV = $(INSTALL) --require-hashes --requirement $(DEV_LOCK) \
    && $(INSTALL) --no-deps --no-build-isolation --editable .
  INSTALL_DOCS = $(INSTALL_DEV)
else
  DEV_LOCK :=
  INSTALL_DEV = $(INSTALL) --editable '.[dev]'
  INSTALL_DOCS = $(INSTALL) --editable '.[docs]'
endif

.DEFAULT_GOAL := help
.PHONY: help setup demo tools test test-deep test-newest test-interpreter soak check docs mutants \
  generate bench lock audit dist sbom image release-check clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.dev ## create .venv with everything that development needs

demo: $(VENV)/.runtime ## start a flaky upstream and the proxy in front of it; Ctrl-C stops both
	@$(BIN)/python -m proxy.demo --with-proxy config/demo.yaml

# Programs that some tests need and no Python package brings. `make test` gets what it can put into
# .venv; this installs the rest, as root.
tools: $(VENV)/.dev ## install the programs that tests need, as root: CONTRIBUTING.md lists them
	@$(BIN)/python -m tests.support.tools --install

# Most tests, JOBS at a time; then those that measure, which are disturbed least by each other.
test: $(VENV)/.dev | $(COMPILED) ## run the whole test suite, and name the 20 slowest tests
	@$(BIN)/python -m tests.support.tools
	@$(PYTEST) -m "not alone and not deep" $(PARALLEL) --junitxml $(REPORTS)/parallel.xml
	@$(PYTEST) -m "alone and not deep" $(MEASURING) --junitxml $(REPORTS)/alone.xml
	@$(BIN)/python -m tests.support.slowest $(REPORTS)/parallel.xml $(REPORTS)/alone.xml

# In a new checkout pytest compiles every test: once, on two cores, and not in each of JOBS processes.
$(COMPILED): | $(VENV)/.dev
	@mkdir -p $(@D)
	@$(PYTEST) --collect-only tests/[a-o]* > $@.first & \
	$(PYTEST) --collect-only tests/[p-z]* > $@.second && wait $$! && mv $@.second $@ && rm $@.first

# What takes minutes: thousands of random cases, and limits watched for longer than their window.
# One at a time, because crowds of requests wait for each other within seconds; only the scripts of
# keys and the soak of deliveries wait more than they work.
test-deep: $(VENV)/.dev ## run the long tests that `make test` leaves out
	@$(BIN)/python -m tests.support.tools
	@HOLDFAST_FUZZ=deep $(PYTEST) -m deep --deselect $(SCRIPTS) --deselect $(SOAK)
	@HOLDFAST_FUZZ=deep $(PYTEST) -m deep --numprocesses 3 $(SCRIPTS) $(SOAK)

# Deliveries under load, with restarts, outages and kill -9; then every id is accounted for.
soak: $(VENV)/.dev ## hand 200 requests a second off, with a restart every 10 s, for MINUTES (15)
	@$(BIN)/python -m tests.faults.soak $$(( $${MINUTES:-15} * 60 ))

# The suite runs on the oldest Python; what depends on the interpreter on the newest as well.
test-newest: $(VENV)/.dev ## run what depends on the interpreter on the newest Python there is
	@newest="$$($(BIN)/python -m tests.support.newest_python)"; \
	if [ -z "$$newest" ]; then \
	  echo "No newer Python is here than that of $(VENV): nothing to test"; \
	else \
	  $(MAKE) --no-print-directory test-interpreter \
	    PYTHON="$$newest" VENV="$(VENV)/$$(basename "$$newest")"; \
	fi

test-interpreter: $(VENV)/.dev
	@$(BIN)/python --version
	@$(PYTEST) -m "interpreter and not alone and not deep" $(PARALLEL)

check: $(VENV)/.dev ## lint, format, types, and nothing generated is stale; changes nothing
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/hadolint Dockerfile
	@$(BIN)/zizmor --quiet --offline .github
	@$(BIN)/python -m tests.release.workflows
	@$(BIN)/python -m tests.release.lock --check
	@$(BIN)/python -m tests.generate --check

# A link or an anchor that leads nowhere is a warning, and a warning is an error.
docs: $(VENV)/.docs ## build the site from docs/, with search, and man pages into build/
	@$(SPHINX) -b html docs build/docs
	@$(SPHINX) -b man docs build/man
	@echo "build/docs/index.html, build/man/holdfast.1, build/man/holdfast.yaml.5"

# Goes on where the last run stopped; ONLY='proxy.policy.retry.*' tries those again.
mutants: $(VENV)/.mutation ## change policy/ and pipeline/ a little, list what no test notices (MINUTES=20)
	@$(BIN)/python -m tests.mutants --minutes $(MINUTES) --jobs $(JOBS) $(foreach name,$(ONLY),'$(name)')

generate: $(VENV)/.dev ## write what is made from the code: schema, tables and figures
	@$(BIN)/python -m tests.generate

bench: $(VENV)/.bench ## measure CPU, latency and memory beside five peers, and hand-off beside huey (QUICK=1: in three minutes)
	@$(BIN)/python -m bench.run $(if $(QUICK),--quick) $(BENCH_ARGS)
	@$(BIN)/python -m bench.hand_off $(if $(QUICK),--quick)

# Versions that are in the lock stay if pyproject.toml allows them; UPGRADE=1 takes the newest.
lock: $(VENV)/.release ## write requirements*.lock: every package with version and hashes (UPGRADE=1)
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m tests.release.lock $(if $(UPGRADE),--upgrade)

audit: $(VENV)/.release ## ask whether a package of the locks has a known vulnerability
	@for lock in requirements.lock requirements-build.lock requirements-dev.lock; do \
	  echo "$$lock:"; \
	  $(BIN)/pip-audit --strict --disable-pip --require-hashes --requirement $$lock || exit 1; \
	done

dist: $(VENV)/.dev ## build wheel and source distribution into dist/
	@$(BIN)/python -m hatchling build --clean

sbom: $(VENV)/.dev ## write the bill of materials (CycloneDX) into dist/
	@$(BIN)/python -m tests.release.sbom --created "$$(git log -1 --format=%ct)"

# Needs no environment: what the image installs comes from the locks, inside of it.
image: ## build the container image, with labels that say what it is built from
	@docker build --tag holdfast \
	  --build-arg VERSION="$$(sed -n 's/^__version__ = "\(.*\)"$$/\1/p' proxy/__init__.py)" \
	  --build-arg REVISION="$$(git rev-parse HEAD)" \
	  --build-arg CREATED="$$(git log -1 --format=%cI)" .

release-check: $(VENV)/.dev ## say what is missing before this commit can be released; changes nothing
	@$(BIN)/python -m tests.release.check

clean: ## remove .venv, and what the tools and the benchmark left behind
	rm -rf $(VENV) build dist mutants .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find bench -path 'bench/results/*' -type f ! -name 'published.*' -delete
	find proxy tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# Editable installs: a change of the code needs no new one.
$(VENV)/.runtime: pyproject.toml | $(BIN)/python
	@echo "Installing holdfast into $(VENV) ..."
	@$(INSTALL) --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml $(DEV_LOCK) | $(BIN)/python
	@echo "Installing holdfast and its development tools into $(VENV) ..."
	@$(INSTALL_DEV)
	@touch $(VENV)/.runtime $@

$(VENV)/.mutation: pyproject.toml | $(BIN)/python
	@echo "Installing holdfast, its development tools and mutmut into $(VENV) ..."
	@$(INSTALL) --editable '.[dev,mutation]'
	@touch $(VENV)/.runtime $(VENV)/.dev $@

$(VENV)/.docs: pyproject.toml $(DEV_LOCK) | $(BIN)/python
	@echo "Installing holdfast and what builds its pages into $(VENV) ..."
	@$(INSTALL_DOCS)
	@touch $(VENV)/.runtime $@

# In CI they are in the lock, and so in .dev.
$(VENV)/.release: pyproject.toml $(VENV)/.dev | $(BIN)/python
ifneq ($(CI),true)
	@echo "Installing the tools of a release into $(VENV) ..."
	@$(INSTALL) --editable '.[release]'
endif
	@touch $@

$(VENV)/.bench: pyproject.toml | $(BIN)/python
	@echo "Installing holdfast and its benchmark peers into $(VENV) ..."
	@$(INSTALL) --editable '.[bench]'
	@touch $(VENV)/.runtime $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Holdfast needs Python 3.11 or newer; $(PYTHON) is not. Try: make PYTHON=python3.13" >&2; \
	  exit 1; }
	@if command -v uv >/dev/null; then \
	  uv venv --quiet --seed --python "$$(command -v $(PYTHON))" $(VENV); \
	elif $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
	  $(PYTHON) -m venv $(VENV); \
	else \
	  echo "This Python cannot create virtual environments. On Debian or Ubuntu:" >&2; \
	  echo "  sudo apt-get install python3-venv" >&2; \
	  exit 1; \
	fi
