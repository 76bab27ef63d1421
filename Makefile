# All tasks of developers and of CI. On a fresh machine with Python 3.11+ and make, `make demo` and `make test`
# install what they need.

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast check lint types imports rules bench lab crash faults cluster fuzz soak generate lock clean venv venv-dev jars classes node sdks

# The first Python on PATH that is new enough; `make PYTHON=…` chooses another.
PYTHON ?= $(or $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done),python3)
BIN := .venv/bin
LAMBDA_RUNTIME := tests/client/aws_lambda/runtime
# Without bytecode files, each of the hundreds of Python processes that tests start would compile every module that it imports.
unexport PYTHONDONTWRITEBYTECODE
GENERATORS := alerts/generate.py deploy/reference.py scripts/metrics_page.py scripts/partial_page.py

help:  ## This list.
	@sed -n 's/^\([a-z-]*\):.*  ## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo: venv  ## Run the demo on this machine; needs no Java, broker or container.
	@$(BIN)/queuewatch demo $(ARGS)

test: venv-dev jars classes node sdks  ## Run all tests, with real brokers in containers or as local processes. ARGS="-k name" selects tests.
	@$(BIN)/python $(if $(ARGS),-m pytest $(ARGS),.ci/parallel.py)

test-fast: venv-dev  ## The three quarters of the tests that are quick and need no broker, browser, Java or Node.js: about two minutes. ARGS="-k name" selects.
	@QUEUEWATCH_EXAMPLES=$${QUEUEWATCH_EXAMPLES:-15} $(BIN)/python $(if $(ARGS),-m pytest --fast $(ARGS),.ci/parallel.py --fast --durations=5 --durations-min=1.5)

check: lint types imports rules test  ## Lint, types, import contracts, generated files, promtool and all tests; must pass before a change is submitted.

lint: venv-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: venv-dev
	$(BIN)/mypy

imports: venv-dev
	$(BIN)/lint-imports

# What was generated must be what the catalogue says today, and Prometheus must accept it.
rules: venv-dev
	@for script in $(GENERATORS); do $(BIN)/python $$script --check || exit 1; done
	@if command -v promtool >/dev/null; then promtool check rules --lint-fatal $$(find alerts/generated -name '*rules*.y*ml'); \
		elif [ "$$CI" = true ]; then echo "promtool is missing: install the package prometheus"; exit 1; \
		else echo "promtool is not installed: the rules were not checked"; fi

generate: venv-dev  ## Regenerate files: rules, dashboards, runbook, the lists of metrics and settings.
	@for script in $(GENERATORS); do $(BIN)/python $$script || exit 1; done

bench: venv-dev jars  ## Measure throughput, latency and state size; prints a table and writes JSON. Takes minutes.
	@$(BIN)/python -m tests.benchmarks $(ARGS)

lab: venv-dev  ## Measure fault detection on simulated queues; prints a table. Takes minutes. ARGS="matrix --only healthy" selects runs.
	@$(BIN)/python -m lab $(or $(ARGS),matrix)

crash: venv-dev  ## Try every crash point of a run, some thousands; the tests try some of them. Takes a quarter of an hour of processor time.
	@CRASH_POINTS=all $(BIN)/python -m pytest -q -s tests/crash

faults: venv-dev  ## Break a running service in each way listed in docs/reliability.md. Needs root, takes minutes. ARGS="driver_killed" selects.
	@$(BIN)/python -m tests.faults $(ARGS)

cluster: venv-dev  ## The faults of a job on a Spark cluster: a master and two workers as local processes. Takes minutes.
	@$(BIN)/python -m tests.faults --cluster $(ARGS)

fuzz: venv-dev  ## Fuzz decoder, scanner, state, config, ingest and spool. ARGS="--seconds 3600 decode" selects a target.
	@$(BIN)/python -m tests.fuzz $(ARGS)

soak: venv-dev  ## Run ten minutes at 20,000 events/s; fails if memory, checkpoint or latency grow. ARGS="--minutes 60" changes the time.
	@$(BIN)/python -m tests.soak $(ARGS)

lock: venv-dev  ## Pin the dependencies of pyproject.toml with hashes. ARGS=--upgrade takes the newest versions.
	$(BIN)/pip install -q --disable-pip-version-check uv
	$(BIN)/python .ci/lock.py $(ARGS)

clean:  ## Remove build and run artifacts; keeps the virtual environment and the download caches.
	rm -rf build dist *.egg-info client/build client/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis \
		spark-warehouse metastore_db derby.log artifacts
	find alerts client lab sinks sources streaming tests -name __pycache__ -type d -prune -exec rm -rf {} +

venv:
	@$(PYTHON) .ci/venv.py requirements-demo.txt

venv-dev:
	@$(PYTHON) .ci/venv.py requirements-demo.txt requirements-dev.txt

# Without Maven or npm, the tests that need them are skipped with the reason (with CI=true they fail).
jars: venv-dev
	@$(BIN)/python -m streaming.spark.jars deploy/jars/*.xml || [ "$$CI" != true ]

# Many tests start Spark's Java. With its class archive, a start takes half the processor time.
classes: venv-dev
	@$(BIN)/python -m streaming.spark.class_archive --if-needed || [ "$$CI" != true ]

# SDKs for the proxy tests; tests with a missing SDK are skipped.
sdks: venv-dev
	@$(BIN)/python .ci/sdks.py || [ "$$CI" != true ]

node:
	@if ! command -v npm >/dev/null; then echo "npm is not installed: tests on miniflare are skipped"; [ "$$CI" != true ]; \
		elif ! cmp -s package-lock.json node_modules/.installed-lock.json; then \
		echo "Installing the node packages of package-lock.json"; \
		npm ci --silent --no-audit --no-fund && cp package-lock.json node_modules/.installed-lock.json; fi
	@if command -v npm >/dev/null && ! cmp -s $(LAMBDA_RUNTIME)/package-lock.json $(LAMBDA_RUNTIME)/node_modules/.installed-lock.json; then \
		echo "Compiling Lambda's runtime interface client for Node.js, once; some minutes (cmake and a C++ compiler)"; \
		(cd $(LAMBDA_RUNTIME) && npm ci --silent --no-audit --no-fund && cp package-lock.json node_modules/.installed-lock.json) || \
		{ echo "It could not be compiled: its tests are skipped"; [ "$$CI" != true ]; }; fi
