# make help lists what can be made. Everything runs in .venv, which is made on the first call.

# An interpreter of your choice: make repro PYTHON=python3.13. Otherwise the one that .venv has
# already, or the first of these that is 3.11 to 3.13.
PYTHON ?= .venv/bin/python python3.11 python3.12 python3.13 python3

export PATH := $(CURDIR)/.venv/bin:$(PATH)

# Bytecode is written when a module is first imported (some 15 s in all, where compiling every module
# of every package takes over a minute of CPU), so nothing may forbid that.
unexport PYTHONDONTWRITEBYTECODE
PACKAGES = .venv/bin/python -m pip install --quiet --no-compile --no-input --disable-pip-version-check

# Names of files reach a shell through the environment, and make does not expand them: in a name like
# `$(rm x).csv` every character is one of the name.
override DATA := $(value DATA)
override TEXT := $(value TEXT)
override STUDY := $(value STUDY)
override MODEL := $(value MODEL)
override TASK := $(value TASK)
export DATA TEXT STUDY MODEL TASK

.DEFAULT_GOAL := help
.PHONY: help new plan repro check test nightly coverage docs ui lock clean setup

help: ## show this list
	@sed -n 's/^\([a-z]*\):[^#]*## /make \1|/p' Makefile | while IFS='|' read -r name text; do \
	    echo "$$text" | fold -s -w 62 | sed "1s/^/  $$name\t/; 2,\$$s/^/\t/"; \
	done | expand -t 16

new: setup ## write a study of your labelled files: DATA=reviews.csv [TEXT=folder] [MINUTES=10] [FLAGS=--no-published ...]
	@python -m stages.commands.new $${TEXT:+"--corpus=$$TEXT"} \
	    --minutes $(or $(MINUTES),10) $(if $(FORCE),--force) $(FLAGS) $${DATA:+-- "$$DATA"}

repro: setup ## run what changed of the study in params.yaml (STUDY=FILE: put it there first; JOBS=N: N jobs side by side, else as many as fit), and show the comparison
	@exec python -m stages.commands.repro --jobs $(or $(JOBS),auto) $${STUDY:+"--study=$$STUDY"} \
	    $(if $(CLUSTER),--cluster $(CLUSTER)) $(if $(SCHEDULER),--scheduler $(SCHEDULER))
	@python -m stages.commands.summary

predict: setup ## predict new rows with the recommended model: DATA=new.csv [MODEL=minilm] [TASK=tag] [FLAGS=...]
	@python -m stages.commands.predict $${MODEL:+"--model=$$MODEL"} $${TASK:+"--task=$$TASK"} \
	    $(FLAGS) $${DATA:+-- "$$DATA"}

plan: setup ## what make repro would run and what that costs (FLAGS=--resolved: the value of every setting), before anything runs
	@if [ -n "$$STUDY" ]; then \
	    echo "error: STUDY: make plan plans params.yaml; copy the study there first" >&2; exit 2; fi
	@python -m stages.commands.plan $(FLAGS)

# Types keep one core busy for a minute, so the checks run beside the tests. Their result is printed
# when they end, and either one can fail.
define CHECKED
	@log="$$(mktemp)"; \
	{ pre-commit run --all-files >"$$log" 2>&1; status=$$?; cat "$$log"; exit $$status; } & \
	checks=$$!; \
	pytest -n auto --dist loadfile $(1); tests=$$?; \
	wait $$checks; checks=$$?; rm -f "$$log"; \
	test $$checks = 0 && test $$tests = 0
endef

check: setup ## lint, types, layers (.pre-commit-config.yaml) and the fast tests
	$(call CHECKED,-q -m "not slow and not nightly")

test: setup ## the same with the slow tests
	$(call CHECKED,-m "not nightly")

nightly: setup ## the tests that take long and find little
	@pytest -n auto --dist loadfile -m nightly

coverage: setup ## make test, and how much of the code it runs: a tenth slower
	$(call CHECKED,-m "not nightly" --cov --cov-report=term)

ui: setup ## the study in MLflow
	@python -m stages.commands.ui

# The generator comes beside the packages of the lock and moves none of them.
docs: setup ## the pages in docs/ as a site in site/; a broken link is an error
	@python -m stages.commands.components --write docs/*.md
	@python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' \
	    | $(PACKAGES) --constraint requirements.lock --requirement /dev/stdin
	@zensical build --strict --config-file mkdocs.yml

# Which packages are installed is keyed by the lock's content and Python's version. Every package
# stands in the lock, so pip need not resolve anything (--no-deps) and two can share the work, which
# keeps one core busy for over a minute. What torch's own build asks for besides (CUDA's packages)
# only the last line looks up.
setup: ## install the packages of requirements.lock into .venv, if need be
	@for python in $(PYTHON); do \
	    key="$$("$$python" -c '$(KEY)' 2>/dev/null)" && break; \
	done; \
	if test -z "$$key"; then \
	    echo "error: none of '$(PYTHON)' is Python 3.11, 3.12 or 3.13;" \
	        "install one, or name it: make PYTHON=/path/to/python3.12" >&2; exit 1; \
	fi; \
	test "$$key" = "$$(cat .venv/installed 2>/dev/null)" || { \
	    echo "Installing the packages of requirements.lock into .venv, once"; \
	    test "$$python" -ef .venv/bin/python || "$$python" -m venv --clear .venv; \
	    $(BY_HALVES) && \
	    echo "$$key" >.venv/installed; \
	}

define BY_HALVES
awk 'NR % 2' requirements.lock >.venv/half; \
	    $(PACKAGES) --no-deps --requirement .venv/half & other=$$!; \
	    awk 'NR % 2 == 0' requirements.lock | $(PACKAGES) --no-deps --requirement /dev/stdin && \
	    wait $$other && \
	    $(PACKAGES) --constraint requirements.lock torch
endef

KEY = import hashlib, sys; \
    assert (3, 11) <= sys.version_info < (3, 14); \
    lock = hashlib.sha256(open("requirements.lock", "rb").read()).hexdigest(); \
    print(sys.version.split()[0], lock)

# One resolution for all of Python 3.11 to 3.13, in seconds. CUDA's packages are left to torch, which
# pins them itself.
lock: setup ## resolve pyproject.toml anew into requirements.lock, with the newest versions
	@$(PACKAGES) uv
	@.venv/bin/uv pip compile pyproject.toml --extra dev --extra jobs --output-file requirements.lock --upgrade \
	    --python-version 3.11 --universal --fork-strategy fewest --no-annotate --quiet \
	    --custom-compile-command "make lock" --system-certs

clean: ## remove .venv, caches and the store of trials; results and DVC's cache stay
	rm -rf .scratch/trials .scratch/parsed .scratch/vega .venv .pytest_cache .ruff_cache .hypothesis .coverage*
