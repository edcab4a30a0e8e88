# riverrun: what a person or a CI runs. `make` alone lists the targets.
#
# Needs Python 3.11 or newer with its venv module, and nothing else; `make kafka` and `make demo-kafka` also
# need Java 17 and Maven. Nothing needs root, and nothing is written outside this folder and the temporary one.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:
.SUFFIXES:

# The Python to build .venv with; empty: the first of python3, python3.14, … that is new enough.
PYTHON ?=
# More arguments for the command of `demo`, `demo-kafka` and `bench`.
ARGS ?=
# More arguments for pytest in `test`.
PYTEST_ARGS ?=
# More arguments for `lock`: --upgrade raises the pins, without it they stay where they can.
LOCK_ARGS ?=
BENCHMARKS ?= pipeline memory serving
SECRETS ?= deploy/compose/secrets

VENV := .venv
BIN := $(VENV)/bin
BASE := $(VENV)/.stamp-base
DEV := $(VENV)/.stamp-dev
RIVERRUN := $(VENV)/.stamp-riverrun
BROKER := $(BIN)/python deploy/kafka/broker.py
PIP_INSTALL := $(BIN)/python -m pip install --quiet --no-input --no-cache-dir --disable-pip-version-check

# Settings of the caller's shell that would lead the environment's Python or pip astray.
unexport PYTHONHOME PYTHONPATH PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIREMENT VIRTUAL_ENV

.PHONY: help
help:  ## this list
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

# Looks for a Python that is new enough; anything short of a full environment has no stamp and is made anew.
$(BASE): requirements/base.txt
	@set -eu; \
	python=; \
	for name in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11); do \
	    if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        python=$$name; \
	        break; \
	    fi; \
	done; \
	if [ -z "$$python" ]; then \
	    found=$$("$(or $(PYTHON),python3)" --version 2>/dev/null || echo "$(or $(PYTHON),python3): not found"); \
	    echo "riverrun needs Python 3.11 or newer ($$found). Name one: make PYTHON=python3.12" >&2; \
	    exit 1; \
	fi; \
	if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	    version=$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	    echo "$$python has no venv module. On Debian and Ubuntu, as root:" >&2; \
	    echo "    apt-get install python$$version-venv" >&2; \
	    exit 1; \
	fi; \
	rm -rf $(VENV); \
	echo "Building $(VENV) with $$("$$python" --version): about 250 MB to fetch, 750 MB on disk"; \
	"$$python" -m venv $(VENV); \
	$(PIP_INSTALL) --require-hashes -r requirements/base.txt; \
	touch $@

# A cut-short installation leaves neither stamp, so that the next run starts from nothing.
$(DEV): $(BASE) requirements/dev.txt
	@set -eu; \
	echo "Adding the tools of the tests and benchmarks to $(VENV)"; \
	rm -f $(BASE) $(RIVERRUN); \
	$(PIP_INSTALL) --require-hashes -r requirements/dev.txt; \
	touch $(BASE) $@

# Editable: the code itself needs no reinstallation, only what pyproject.toml says of it.
$(RIVERRUN): $(BASE) pyproject.toml
	@set -eu; \
	$(PIP_INSTALL) --no-deps --no-build-isolation -e .; \
	touch $@

.PHONY: install
install: $(BASE) $(RIVERRUN)  ## build .venv with riverrun in it
	@echo "Ready: $(BIN)/riverrun --help"

.PHONY: demo
demo: $(BASE) $(RIVERRUN)  ## the whole loop on real data, with its report (ARGS="--events 20000 --json")
	@$(BIN)/riverrun demo $(ARGS)

# Prints what runs, runs it, and names what failed.
define step
	@printf '\n--- %s\n' "$(strip $(1))"
	@$(1) || { status=$$?; \
	    printf '\nmake test: FAILED at "%s" (exit status %s)\n' "$(strip $(1))" "$$status" >&2; \
	    exit "$$status"; }
endef

.PHONY: test
test: $(BASE) $(DEV) $(RIVERRUN)  ## lint, types, layers and all tests; stops at the first failure
	$(call step,$(BIN)/ruff check)
	$(call step,$(BIN)/ruff format --check)
	$(call step,$(BIN)/mypy)
	$(call step,$(BIN)/lint-imports)
	$(call step,$(BIN)/python -m pytest $(PYTEST_ARGS))

.PHONY: bench
bench: $(BASE) $(DEV) $(RIVERRUN)  ## the benchmarks beside their peers (ARGS="--quick", BENCHMARKS=serving)
	@set -eu; \
	for name in $(BENCHMARKS); do \
	    printf '\n--- benchmarks/%s.py\n' "$$name"; \
	    $(BIN)/python "benchmarks/$$name.py" $(ARGS); \
	done

.PHONY: kafka
kafka: $(BASE)  ## start a real Kafka broker on this machine (Java 17 and Maven)
	@$(BROKER) up

.PHONY: kafka-down
kafka-down: $(BASE)  ## end it
	@$(BROKER) down

# A broker that ran before keeps running; one started here ends with the demo, however that ends.
.PHONY: demo-kafka
demo-kafka: $(BASE) $(RIVERRUN)  ## the demo over a real Kafka broker
	@set -eu; \
	if ! kill -0 "$$(cat .run/kafka/broker.pid 2>/dev/null)" 2>/dev/null; then \
	    trap '$(BROKER) down' EXIT; \
	    trap 'exit 130' INT; \
	    trap 'exit 143' TERM; \
	fi; \
	url=$$($(BROKER) up); \
	RIVERRUN__LOG__URL="$$url" $(BIN)/riverrun demo --kafka $(ARGS)

# Only what is missing is made: a second run changes no password that is in use. The folder lets nobody but
# its owner in; the files are readable because containers read them under user ids of their own. The store's
# account reaches its own keys and no administration (it may read settings, for `riverrun doctor`).
.PHONY: secrets
secrets:  ## random passwords for docker-compose.yml, in deploy/compose/secrets
	@set -eu; umask 077; \
	mkdir -p "$(SECRETS)"; \
	chmod 700 "$(SECRETS)"; \
	cd "$(SECRETS)"; \
	random() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }; \
	if ! [ -s redis_users.conf ] || ! [ -s store_url ]; then \
	    password=$$(random); \
	    rm -f redis_users.conf store_url; \
	    printf 'user default off\nuser riverrun on >%s %s\n' "$$password" \
	        '~riverrun:* resetchannels &riverrun:* +@all -@scripting -@dangerous +config|get' > redis_users.conf; \
	    printf 'redis://riverrun:%s@redis:6379/0\n' "$$password" > store_url; \
	fi; \
	if ! [ -s admin_token ]; then \
	    rm -f admin_token; \
	    printf '%s\n' "$$(random)" > admin_token; \
	fi; \
	chmod 444 redis_users.conf store_url admin_token; \
	echo "Secrets in $(SECRETS)"

# The extras are held to the pins of base.txt, so that each fits into the same environment.
.PHONY: lock
lock: $(BASE)  ## pin requirements/*.txt again, with hashes (LOCK_ARGS=--upgrade)
	@set -eu; \
	work=$$(mktemp -d); \
	trap 'rm -rf "$$work"' EXIT; \
	$(BIN)/python -m venv "$$work/venv"; \
	"$$work/venv/bin/python" -m pip install --quiet --no-input --no-cache-dir --disable-pip-version-check uv; \
	lock() { \
	    out=$$1; shift; \
	    "$$work/venv/bin/uv" pip compile --quiet --no-cache --universal --generate-hashes --no-emit-index-url \
	        --no-emit-find-links --no-header $(LOCK_ARGS) "$$@" -o "requirements/$$out.txt"; \
	    echo "requirements/$$out.txt: $$(grep -c == "requirements/$$out.txt") pins"; \
	}; \
	lock base pyproject.toml requirements/build.in -c requirements/constraints.in; \
	lock dev pyproject.toml requirements/build.in --extra dev --extra bench -c requirements/base.txt; \
	lock torch pyproject.toml --extra torch -c requirements/base.txt; \
	lock faust pyproject.toml --extra faust -c requirements/base.txt

.PHONY: clean
clean:  ## remove .venv, caches, the local broker's data and builds (the secrets stay)
	@if [ -x $(BIN)/python ] && [ -f .run/kafka/broker.pid ]; then $(BROKER) down || true; fi
	@rm -rf $(VENV) .run dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
