# Everything a person or a CI machine does here. On a fresh machine with Python 3.11+ and make, `make demo` and
# `make test` set up what they need.

.DEFAULT_GOAL := help
.PHONY: help demo test check lint types imports rules bench lab crash faults fuzz soak generate lock clean venv venv-dev jars node sdks

# The first Python on PATH that is new enough; `make PYTHON=…` chooses another.
PYTHON ?= $(or $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done),python3)
BIN := .venv/bin
LAMBDA_RUNTIME := tests/client/aws_lambda/runtime
GENERATORS := alerts/generate.py deploy/reference.py scripts/metrics_page.py scripts/partial_page.py

help:  ## This list.
	@sed -n 's/^\([a-z]*\):.*  ## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo: venv  ## The whole thing on this machine, without Java, broker or container.
	@$(BIN)/queuewatch demo $(ARGS)

test: venv-dev jars node sdks  ## Every test, against real brokers as local processes. ARGS="-k name" chooses.
	@$(BIN)/python $(if $(ARGS),-m pytest $(ARGS),.ci/halves.py)

check: lint types imports rules test  ## What CI does, and what must pass before a change is handed in.

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

generate: venv-dev  ## Write what is made from code: rules, dashboards, runbook, the lists of metrics and settings.
	@for script in $(GENERATORS); do $(BIN)/python $$script || exit 1; done

bench: venv-dev jars  ## Throughput, latency and state size, as a table and JSON; minutes.
	@$(BIN)/python -m tests.benchmarks $(ARGS)

lab: venv-dev  ## How well faults are told, on simulated queues: a table, minutes. ARGS="matrix --only healthy" chooses.
	@$(BIN)/python -m lab $(or $(ARGS),matrix)

crash: venv-dev  ## Every crash point of a run, some thousands; a share of them is in the tests. Tens of minutes.
	@CRASH_POINTS=all $(BIN)/python -m pytest -q -s tests/crash

faults: venv-dev  ## Break a running service in each way: the table of docs/reliability.md. Root, minutes. ARGS="driver_killed" chooses.
	@$(BIN)/python -m tests.faults $(ARGS)

fuzz: venv-dev  ## Bytes nobody meant for decoder, scan, state, config, ingest and spool. ARGS="--seconds 3600 decode" chooses.
	@$(BIN)/python -m tests.fuzz $(ARGS)

soak: venv-dev  ## Ten minutes at 20,000 events/s: fails when memory, checkpoint or latency grow. ARGS="--minutes 60" chooses.
	@$(BIN)/python -m tests.soak $(ARGS)

lock: venv-dev  ## Pin what pyproject.toml asks for, with hashes. ARGS=--upgrade takes the newest versions.
	$(BIN)/pip install -q --disable-pip-version-check uv
	$(BIN)/python .ci/lock.py $(ARGS)

clean:  ## Remove what builds and runs left behind; the virtual environment and the caches of downloads stay.
	rm -rf build dist *.egg-info client/build client/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis \
		spark-warehouse metastore_db derby.log artifacts
	find alerts client lab sinks sources streaming tests -name __pycache__ -type d -prune -exec rm -rf {} +

venv:
	@$(PYTHON) .ci/venv.py requirements.txt

venv-dev:
	@$(PYTHON) .ci/venv.py requirements.txt requirements-dev.txt

# Without Maven or npm the tests that need them say so and are skipped (under CI=true they fail).
jars: venv-dev
	@$(BIN)/python -m streaming.spark.jars deploy/jars/*.xml || [ "$$CI" != true ]

# Other SDKs that the proxy is tried with; tests with one that is missing are skipped.
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
