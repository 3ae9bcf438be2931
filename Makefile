# Every target prepares what it needs; `make help` lists them. ARGS goes to the command behind a target.
.DEFAULT_GOAL := help
.PHONY: help setup demo test chaos test-slow bench bench-adapt figures docs dist lint clean
SHELL := bash

ARGS ?=
# JAVA_HOME, PYSPARK_PYTHON and the environment's commands on PATH, as scripts/setup.sh found them
RUN := source .venv/sluice-env.sh &&

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: ## prepare .venv, and a Java for Spark if there is none (again: only what changed)
	@scripts/setup.sh

demo: setup ## three minutes: a join beside Spark's own, then a site that turns slow; checked against batch queries
	@$(RUN) python -m examples.demo $(ARGS)

test: setup ## all tests but the slow ones, in two processes; ARGS="-k join" narrows them
	@scripts/browser.sh
	@$(RUN) python -m pytest -m "not slow" -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

chaos: setup ## random runs under all policies, one a seed: SEEDS=2000:2500
	@$(RUN) CHAOS_SEEDS=$(or $(SEEDS),0:100) python -m pytest tests/engine/test_chaos.py -k test_exact_under_chaos -n 2 $(ARGS)

test-slow: setup ## the long tests: kills, suspensions, damage, chaos, a month of epochs, and more examples of properties
	@$(RUN) HYPOTHESIS_PROFILE=long python -m pytest -m "slow or hypothesis" $(ARGS)

bench: setup ## Sluice beside Spark's own join, Flink, DuckDB and others; ARGS="--help" lists the choices
	@scripts/peers.sh $(ARGS)
	@$(RUN) python -m benchmarks.run $(ARGS)

bench-adapt: setup ## policies side by side while sites slow down, keys drift and memory is short; ARGS="--help"
	@$(RUN) python -m benchmarks.adapt $(ARGS)

figures: setup ## the experiments of all papers in the simulator, into figures/; half an hour, nearly all of it for Flux; fails on what differs from docs/figures
	@$(RUN) sluice figures all --out figures --against docs/figures $(ARGS)

docs: setup ## the documentation site, into site/; a warning, or a link that leads nowhere, is an error
	@export NO_MKDOCS_2_WARNING=1 && $(RUN) mkdocs build --strict $(ARGS)

dist: setup ## wheel and sdist into dist/, tried in an empty environment
	@rm -rf dist
	@$(RUN) python -m build --outdir dist
	@$(RUN) SLUICE_DIST=dist python -m pytest tests/spark/test_release.py

lint: setup ## ruff, mypy and the import contracts
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy
	@$(RUN) lint-imports --no-logo

clean: ## remove environments, caches, the site and benchmark rows
	rm -rf .venv .venv-flink .venv-pathway .venv-bytewax .jdk .azurite .bench build dist site spark-warehouse metastore_db artifacts derby.log
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
