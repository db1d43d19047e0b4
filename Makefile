# `make demo` and `make test` do all set-up themselves, in a virtual environment of their own.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# Real corpora, where they lie beside the checkout; tests that need them skip without.
ifeq ($(POLYSEME_DATA),)
ifneq ($(wildcard ../shared/data),)
export POLYSEME_DATA := $(abspath ../shared/data)
endif
endif

.PHONY: demo test check torture lint lint-js docs reproduce bench clean

demo: $(VENV)/.core
	$(BIN)/polyseme demo --serve --out demo.html

# Two test processes with one thread each are faster than one with two.
test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --durations=10

# Slow reproductions and the tests that start a cluster; minutes more than `make test`.
check: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --durations=10 -m reproduction

# Faults on purpose, some minutes of each kind; `make torture MINUTES=10 ONLY="models kills"`.
torture: $(VENV)/.dev
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m torture $(ONLY) --minutes $(or $(MINUTES),2) $(FLAGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The studio's types; needs Node.js, which nothing else does.
lint-js:
	npx --yes --package typescript@5.9 tsc --noEmit --allowJs --checkJs --strict --target es2022 \
	  --module es2022 --moduleResolution bundler --lib es2022,dom,dom.iterable src/polyseme/serve/static/*.js

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# What is recorded in results/ is not run again; `make reproduce FLAGS=--fresh` runs everything.
reproduce: $(VENV)/.dev
	$(BIN)/polyseme reproduce all --trials 3 $(FLAGS)

# `make bench ONLY="priming mapping"` runs some; `make bench SIZE=quick` checks that all run.
bench: $(VENV)/.bench
	$(BIN)/python benchmarks/run.py $(ONLY) --size $(or $(SIZE),full) $(FLAGS)

$(VENV)/.core: pyproject.toml experiments/pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[serve,image]' -e experiments
	touch $@

$(VENV)/.dev: pyproject.toml experiments/pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' -e experiments
	touch $(VENV)/.core $@

$(VENV)/.bench: pyproject.toml experiments/pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]' -e experiments
	touch $(VENV)/.core $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV) || \
	  ($(PYTHON) -m pip install --quiet virtualenv && $(PYTHON) -m virtualenv --clear $(VENV))

clean:
	rm -rf $(VENV) build dist site demo.html demo-studio results/cache results-quick
