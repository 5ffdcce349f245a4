# `make demo` and `make test` first create a virtual environment with the versions that the tests ran
# with. PYTHON selects the interpreter, CONSTRAINTS other versions (constraints-min.txt), and PAIR the
# languages of the demo.
PYTHON ?= python3
CONSTRAINTS ?= constraints.txt
PAIR ?= en-de
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-$(notdir $(CONSTRAINTS))
# What an activated environment may have set for its own Python.
unexport PYTHONPATH PYTHONHOME

.PHONY: demo test test-newest test-slow test-hostile test-export test-doors test-import test-serve test-hf lint benchmarks benchmarks-gpu notebook docs clean

# Writes phrases as files of pairs, and trains on them as on your own files.
PHRASES = runs/phrases-$(PAIR)
demo: $(STAMP)
	$(BIN)/python training/demo/phrases.py --pair $(PAIR) --output-dir $(PHRASES)
	$(BIN)/vanilla-transformer train demo --pair $(PAIR) \
		--train-file $(PHRASES)/train.jsonl --validation-file $(PHRASES)/validation.jsonl \
		--test-file $(PHRASES)/test_values.jsonl $(PHRASES)/test_combinations.jsonl \
		--data-source "phrases generated from CLDR" --data-license Unicode-3.0 \
		--output-dir runs/demo-$(PAIR)

LINT = $(1)/ruff check . && $(1)/ruff format --check . && $(1)/python -m mypy
TESTS = $(1)/python -m pytest -q -n 2 --dist loadfile -m "not slow and not gpu"

test: $(STAMP)
	$(call TESTS,$(BIN))

lint: $(STAMP)
	$(call LINT,$(BIN))

# Tests with the newest release of every dependency, whatever pyproject.toml allows, in an environment
# of its own. torch is that of constraints.txt, unless pip is told of PyTorch's index of CPU builds.
NEWEST := .venv-newest
TORCH ?= $(if $(findstring whl/cpu,$(PIP_EXTRA_INDEX_URL)),torch,$(shell grep ^torch== constraints.txt))
test-newest:
	@test -d $(NEWEST) || $(CHECK_PYTHON)
	test -d $(NEWEST) || $(PYTHON) -m venv $(NEWEST)
	@echo "Installing into $(NEWEST). This takes some minutes."
	$(NEWEST)/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager $(TORCH) \
		$$($(NEWEST)/bin/python tests/dependencies.py)
	$(NEWEST)/bin/python -m pip install --quiet --no-deps --editable .
	$(call LINT,$(NEWEST)/bin)
	$(call TESTS,$(NEWEST)/bin)
	$(NEWEST)/bin/python -m pip freeze --exclude-editable | sed "s/+cpu$$//" > $(NEWEST)/constraints.txt
	@echo "Passed with the versions in $(NEWEST)/constraints.txt."

test-slow: $(STAMP)
	$(BIN)/python -m pytest -q -m slow

# Tests killed processes and failing writes, for a quarter of an hour.
# HOSTILE="--kills 100 --writes 100" runs more of them.
test-hostile: $(STAMP)
	$(BIN)/python tests/hostile $(HOSTILE)

# Tests the exports with the engines that run them; `make test` does not install these.
test-export: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable ".[export]"
	$(BIN)/python -m pytest -q tests/convert/test_export_*.py \
		tests/convert/test_serving.py

# Translates 1,000 sentences in every runtime that exports are for, with RUN or everyday-en-de;
# VANILLA_DOORS keeps the environments that this makes.
VANILLA_DOORS ?= $(HOME)/.cache/vanilla_transformer/doors
test-doors: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable ".[export]"
	VANILLA_DOORS=$(VANILLA_DOORS) VANILLA_DOORS_RUN=$(RUN) \
		$(BIN)/python -m pytest -q -rs training/tests/test_doors.py

# Tests the imports alone, with the tokenizers of their sources; `make test` runs these tests too.
test-import: $(STAMP)
	$(BIN)/python -m pytest -q tests/convert/test_import_*.py tests/test_two_vocabularies.py

# Tests the server with LibreTranslate's own client; `make test` does not install either.
test-serve: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable ".[serve]" httpx libretranslatepy
	$(BIN)/python -m pytest -q tests/serving tests/convert/test_serving.py

# Runs the common model tests of transformers. HF_TESTS_ROOT is the path of a checkout of transformers.
test-hf: $(STAMP)
	$(BIN)/python tests/hf/run_common_tests.py

# Close all other programs first. DATA=train.jsonl.gz replaces the generated pairs, and
# PAIRS="30000 300000 5000000" the default numbers of pairs. RUN=runs/multi30k_en_de
# TEST=test.jsonl.gz add real sentences to decoding, and EXPORT=1 adds the other engines.
BENCHMARKS := training/benchmarks
benchmarks: $(STAMP)
	$(BIN)/python $(BENCHMARKS)/training.py --size small $(if $(DATA),--data $(DATA))
	$(BIN)/python $(BENCHMARKS)/training.py --size base --batch-tokens 1024 --steps 1 $(if $(DATA),--data $(DATA))
	$(BIN)/python $(BENCHMARKS)/training.py --size base --memory --only ours,ours_bf16,marian_buckets,marian_bf16
	$(BIN)/python $(BENCHMARKS)/scaling.py $(if $(PAIRS),--pairs $(PAIRS))
	$(if $(EXPORT),$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable ".[export]")
	$(BIN)/python $(BENCHMARKS)/decoding.py $(if $(RUN),--run-directory $(RUN) --test-file $(TEST) --pair $(PAIR))
	$(if $(and $(RUN),$(EXPORT)),$(BIN)/python $(BENCHMARKS)/engines.py $(RUN) --test-file $(TEST) --pair $(PAIR))
	$(if $(and $(RUN),$(EXPORT)),$(BIN)/python $(BENCHMARKS)/serving.py $(RUN))
	$(BIN)/python $(BENCHMARKS)/bad_runs.py
	$(BIN)/python $(BENCHMARKS)/report.py

# Needs a CUDA device. Takes some ten minutes; finished measurements are kept.
benchmarks-gpu: $(STAMP)
	$(BIN)/python $(BENCHMARKS)/gpu.py --size gpu --results runs/benchmarks

# Writes and runs the paper as a notebook in both languages; some minutes.
notebook: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable ".[notebook]"
	$(BIN)/python training/paper/execute.py

# Makes a site of the pages and the docstrings in build/site; a link that leads nowhere is an error.
docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable ".[docs]"
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(BIN)/mkdocs build

CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "$(PYTHON) is Python \
	%d.%d; 3.11 or newer is needed: name one, such as PYTHON=python3.12." % sys.version_info[:2])'

$(STAMP): pyproject.toml $(CONSTRAINTS)
	@test -d $(VENV) || $(CHECK_PYTHON)
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@rm -f $(VENV)/.installed*  # of other versions
	@echo "Installing into $(VENV). This takes some minutes, once."
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) $(NEWEST) build dist .pytest_cache .ruff_cache .mypy_cache
