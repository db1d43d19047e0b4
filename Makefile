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

.PHONY: demo test check torture lint lint-js docs lock sbom audit licences reproduce bench clean

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
	  --module es2022 --moduleResolution bundler --lib es2022,dom,dom.iterable src/polyseme/studio/static/*.js

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Versions and hashes anew, for all platforms, within constraints.txt; FLAGS=--upgrade moves the rest.
# TORCH_CPU is PyTorch's own build for processors alone (Python 3.11, x86-64 Linux), which has a
# version and a hash that the package index does not know of.
TORCH_CPU := 6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b
lock: $(VENV)/.tools
	grep -v $(TORCH_CPU) requirements.lock > $(VENV)/new.lock
	printf '%s\n' pip hatchling editables $(TOOLS) '-e .[dev,bench]' '-e ./experiments' | \
	  $(VENV)/tools/bin/uv pip compile - --quiet --universal --python-version 3.11 --only-binary :all: \
	  --generate-hashes --no-header --no-annotate --no-emit-package polyseme \
	  --no-emit-package polyseme-experiments -c constraints.txt -o $(VENV)/new.lock $(FLAGS) >/dev/null
	awk 'BEGIN { print "# Made by `make lock`; versions come from constraints.txt." } { print } \
	  /^torch==2\.13\.0 / { print "    --hash=sha256:$(TORCH_CPU) \\" }' $(VENV)/new.lock > requirements.lock

# Lists what is installed in .venv, with licences, as CycloneDX JSON.
sbom: $(VENV)/.core $(VENV)/.tools
	$(VENV)/tools/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library \
	  --output-reproducible --output-file sbom.json $(BIN)/python

# Asks the package index for known weaknesses of what is locked; fails where it cannot be asked.
audit: $(VENV)/.tools
	$(VENV)/tools/bin/pip-audit --strict --disable-pip --require-hashes -r requirements.lock

# Resolves every extra, also those that are not installed for development, and installs none.
licences: $(VENV)/.dev
	$(BIN)/pip $(INSTALL) --dry-run --ignore-installed --report $(VENV)/report.json -c constraints.txt \
	  -e '.[dev,bench,parquet,timm,torchvision,open_clip,sentence-transformers]' -e 'experiments[extreme]' \
	  hatchling editables $(TOOLS) $$(grep -oE '^(nvidia|cuda|triton)[^ ]*' requirements.lock)
	$(BIN)/python deploy/licences.py < $(VENV)/report.json > docs/licences.md

# What is recorded in results/ is not run again; `make reproduce FLAGS=--fresh` runs everything.
reproduce: $(VENV)/.dev
	$(BIN)/polyseme reproduce all --trials 3 $(FLAGS)

# `make bench ONLY="priming mapping"` runs some; `make bench SIZE=quick` checks that all run.
bench: $(VENV)/.bench
	$(BIN)/python benchmarks/run.py $(ONLY) --size $(or $(SIZE),full) $(FLAGS)

# Every file that is installed has a hash in requirements.lock, build tools and pip itself included
# (an older pip takes no hashes for what a package asks for); nothing is built but polyseme.
INSTALL := install --quiet --disable-pip-version-check
LOCKED := $(INSTALL) --require-hashes --only-binary :all: -c requirements.lock

$(VENV)/.core: EXTRAS := serve,image
$(VENV)/.dev: EXTRAS := dev
$(VENV)/.bench: EXTRAS := bench
$(VENV)/.core $(VENV)/.dev $(VENV)/.bench: pyproject.toml experiments/pyproject.toml $(VENV)/.pip
	$(BIN)/pip $(LOCKED) hatchling editables
	$(BIN)/pip $(LOCKED) --no-deps $$(sed -n 's/^\(torch==[0-9.]*\).*/\1/p' requirements.lock)+cpu 2>/dev/null || \
	  echo "No build of PyTorch for processors alone is at hand; the usual one is installed."
	$(BIN)/pip $(INSTALL) --no-deps --no-build-isolation -e . -e experiments
	$(BIN)/pip $(LOCKED) 'polyseme[$(EXTRAS)]' polyseme-experiments
	touch $(VENV)/.core $@

$(VENV)/.pip: requirements.lock | $(BIN)/python
	sed -n '/^pip==/,/[^\\]$$/p' requirements.lock > $(VENV)/pip.lock
	$(BIN)/python -m pip $(INSTALL) --require-hashes --only-binary :all: -r $(VENV)/pip.lock
	touch $@

# Tools of their own environment, so that they are no part of what they list.
TOOLS := uv cyclonedx-bom pip-audit
$(VENV)/.tools: $(VENV)/.pip
	$(BIN)/python -m venv --without-pip --clear $(VENV)/tools
	$(BIN)/pip --python $(VENV)/tools $(LOCKED) $(TOOLS)
	touch $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV) || \
	  ($(PYTHON) -m pip install --quiet virtualenv && $(PYTHON) -m virtualenv --clear $(VENV))

clean:
	rm -rf $(VENV) sbom.json build dist site demo.html demo-studio results/cache results-quick
