# Each target first makes what it needs. ARGS goes to the command of the target: make test ARGS="tests/config -x".
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test lint bench-gpu venv lock clean
ARGS ?=

# The package is not installed into the environment, which clones share: it runs from the checkout.
export PYTHONPATH := $(CURDIR)

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s  %s\n", $$1, $$2 }' Makefile

demo: ## Cameras made of photographs, classified by the daemon, read back from Redis; Ctrl-C ends it
	@venv="$$(.ci/venv)"; exec "$$venv/bin/python" .ci/foreground.py "$$venv/bin/python" -m streamd demo $(ARGS)

test: ## The tests, with coverage
	@.ci/system-packages || echo "streamd: going on; tests that need them are skipped and say so" >&2
	@venv="$$(.ci/venv)"; exec "$$venv/bin/python" -m pytest --cov --cov-report=term $(ARGS)

lint: ## Style, types, direction of imports, and pins in step with pyproject.toml
	@venv="$$(.ci/venv)"; set -x; \
	"$$venv/bin/ruff" check; \
	"$$venv/bin/ruff" format --check; \
	"$$venv/bin/mypy"; \
	"$$venv/bin/lint-imports"; \
	"$$venv/bin/python" .ci/requirements.py check

bench-gpu: ## On a machine with a GPU: all measurements, kept in tests/gpu/results/; ARGS="capacity overload" runs these steps only
	@for step in $(or $(ARGS),ceilings capacity growth overload keyframes rtsp agreement dali comparisons); do \
		$(or $(PYTHON),python3) tests/gpu/report.py "$$step" || echo "streamd: $$step is not complete; see its file" >&2; \
	done; $(or $(PYTHON),python3) tests/gpu/report.py summary

venv: ## Only the environment that the other targets use; prints its path
	@.ci/venv

lock: ## Pin the requirements again where pyproject.toml asks for it; ARGS=--upgrade takes the newest
	@$(or $(PYTHON),python3) .ci/requirements.py lock $(ARGS)

clean: ## Remove what builds and tests leave in the checkout
	@rm -rf build dist .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
