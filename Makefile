SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help setup setup-demo setup-dev lint types compiled test light heavy test-all fuzz fuzz-manifests chaos soak soak-tableflow docs site pictures bench demo demo-lake demo-cdc demo-clean servers-up servers-down kube-apiserver promtool

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# Where everything is installed, its smaller parts are.
RUN := $(if $(wildcard $(READY)),$(READY),$(READY)-run)
DEMO := $(if $(wildcard $(READY)),$(READY),$(READY)-demo)
SERVERS ?= .data/servers
# Processes that run tests, each with servers of its own (2 to 3 GB): most of a test is waiting.
TESTERS ?= 4
# Each process of the tests would compile and rewrite all modules again: half of a minute of CPU each.
unexport PYTHONDONTWRITEBYTECODE

help: ## What there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

setup: $(RUN) ## What flows need, in .venv and .cache: 0.8 GB to download, 1.5 GB of disk, a few minutes

setup-demo: $(DEMO) ## The same with the servers of the demos, 0.6 GB of disk more

setup-dev: $(READY) ## The same with what the tests and checks need, 0.5 GB of disk more

# Nothing to do, and no network, while these files are as they were.
INPUTS := pyproject.toml constraints.txt dataflow_assets/spark/jars.lock
INSTALL = $(BIN)/python -m pip install --constraint constraints.txt

$(READY)-run: $(INPUTS)
	@echo "1/3 an environment in .venv"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) --quiet pip
	@echo "2/3 Python packages: 0.7 GB to download"
	$(INSTALL) --editable ".[all,webserver]"
	@# What the wheel does not hold is imported from here: definitions, jobs, resources, sensors, devservers.
	echo "$(CURDIR)" > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/dataflow-assets-clone.pth"
	@echo "3/3 jars for Spark: 0.1 GB to download"
	$(BIN)/python -m devservers fetch spark
	touch $@

$(READY)-demo: $(RUN) $(INPUTS)
	@echo "servers of the demos: 0.2 GB to download"
	$(INSTALL) --editable ".[demo]"
	$(BIN)/python -m devservers fetch kafka postgresql
	touch $@

$(READY): $(INPUTS)
	$(MAKE) --no-print-directory $(READY)-run
	$(INSTALL) --editable ".[demo]" --group dev
	$(BIN)/python -m devservers fetch
	touch $(READY)-run $(READY)-demo $@

lint: setup-dev ## Style, format, and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile

types: setup-dev ## Strict types
	$(BIN)/mypy .

# Each process of the tests would do it again, all of them at once.
compiled: setup-dev
	-$(BIN)/pytest --collect-only -qq > /dev/null

test: setup-dev ## Everything CI asks for; DATAFLOW_TEST_SERVERS=.data/servers uses the servers of servers-up
	@# Types take the longest of what runs before the tests, and one processor.
	$(MAKE) --no-print-directory --jobs 2 types lint compiled
	$(MAKE) --no-print-directory --jobs 2 light heavy
	$(BIN)/pytest -m alone
	@$(BIN)/python -m tests.stress.whole_suite --age

light:
	$(BIN)/pytest --numprocesses $(TESTERS) --dist worksteal -m "not heavy and not alone"

# Most of a test is waiting: these run beside the others, and are shown when they have ended.
heavy:
	@shown=$$($(BIN)/pytest -m heavy 2>&1); ended=$$?; echo "$$shown"; exit $$ended

fuzz: setup-dev ## A million hostile messages through every step, on all cores; the result goes to docs/evidence/fuzz.md
	$(BIN)/python -m tests.stress.fuzz

fuzz-manifests: setup-dev ## A hundred thousand hostile manifests, on all cores; the result goes to docs/evidence/fuzz-manifests.md
	$(BIN)/python -m tests.stress.fuzz_manifests

chaos: setup-dev ## 200 kills and pauses that meet running work, over all sinks; values and order are compared; CHAOS="--kills 20 --modes 'kafka append' --seed 7"; the result goes to docs/evidence/chaos.md
	$(BIN)/python -m tests.stress.chaos $(CHAOS)

test-all: setup-dev $(if $(shell command -v go),kube-apiserver promtool) ## Every law on Spark, with every other end: an hour or two; the result goes to docs/evidence/test-all.md
	$(BIN)/python -m tests.stress.whole_suite

kube-apiserver: setup-dev ## A Kubernetes API server and helm for tests, built with Go into .cache: twenty minutes, once
	$(BIN)/python -m devservers.go_programs $@

promtool: setup-dev ## Prometheus' tool that evaluates alert rules, for tests, built with Go into .cache: ten minutes, once
	$(BIN)/python -m devservers.go_programs $@

soak: setup-dev ## Flows over all connectors for an hour, with restarts; what they hold and leave behind must not grow; SOAK="--minutes 5"; the result goes to docs/evidence/soak.md
	$(BIN)/python -m tests.stress.soak $(SOAK)

soak-tableflow: setup-dev ## A file of Tableflow over two clusters, edited while it runs for an hour, with kills; SOAK="--minutes 10"; the result goes to docs/evidence/soak-tableflow.md
	$(BIN)/python -m tests.stress.soak_tableflow $(SOAK)

docs: setup-dev ## The generated pages: docs/reference, docs/connectors, docs/types.md
	$(BIN)/python -m dataflow_assets.reference --write

site: setup-dev ## The pages as a site with search, in .data/site/html; a broken link ends it
	$(BIN)/python docs/build_site.py

pictures: setup-dev ## The pictures and the recording of the README, from a demo that has come to rest; needs Chromium
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group pictures
	$(BIN)/python -m devservers.demo.pictures

# `make bench -- fleet`: what stands behind `bench` says what to measure.
ifeq (bench,$(firstword $(MAKECMDGOALS)))
MEASURES := $(wordlist 2,$(words $(MAKECMDGOALS)),$(MAKECMDGOALS))
.PHONY: $(MEASURES)
$(sort $(MEASURES)): bench
	@:
endif

bench: setup-dev ## Measurements, each beside its own bound; only some: make bench -- fleet
	$(BIN)/python -m bench $(MEASURES)

demo: setup-demo ## Dagster on real servers with orders coming in, until Ctrl-C; data stays in .data/demo
	$(BIN)/dataflow demo

demo-lake: setup-demo ## The same with Avro over mTLS, Nessie and Trino (Java 24, 1 GB more to download); data stays in .data/demo-lake
	$(BIN)/dataflow demo lake

demo-cdc: setup-demo ## A database that changes, followed in another one, in Dagster, until Ctrl-C; data stays in .data/demo-cdc
	$(BIN)/dataflow demo cdc

demo-clean: ## Forget the demos' data
	rm -rf .data/demo .data/demo-lake .data/demo-cdc

servers-up: setup-demo ## Kafka, PostgreSQL, SeaweedFS, ClickHouse and Spark, left running; data stays in .data/servers
	$(BIN)/python -m devservers up $(SERVERS) --spark

servers-down: setup-demo ## Stop them
	$(BIN)/python -m devservers down $(SERVERS)
