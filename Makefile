.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(INSTALLED)  ## make .venv and install mt into it, with the tested versions

demo: venv  ## get an English-Chinese corpus, train 10 minutes on it, print BLEU, translate "I love china"
	$(BIN)/python scripts/demo.py

test: venv  ## lint, then the fast tests
	$(BIN)/ruff check .
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile

test-demo: venv  ## the demo's promises: its BLEU floor and its sentence (as long as the demo)
	$(BIN)/python -m pytest -m slow tests/slow/test_demo.py

test-multi30k: venv  ## a second corpus through the same commands: 200 updates on Multi30k (minutes)
	$(BIN)/python -m pytest -m slow tests/slow/test_multi30k.py

test-faults: venv  ## kill a training more than fifty times, fill up its disk (10 minutes)
	$(BIN)/python -m pytest -s -m slow tests/slow/test_faults.py

test-hosts: venv  ## several hosts in network namespaces: lost ranks, lost hosts, cut networks (half an hour)
	$(BIN)/python -m pytest -s -m slow tests/slow/test_hosts.py

test-big-files: venv  ## a million lines translated by two processes that are killed (half an hour)
	$(BIN)/python -m pytest -s -m slow tests/slow/test_big_files.py

test-fuzz: venv  ## more than 10,000 odd inputs to readers, settings and tokenizer (minutes)
	$(BIN)/python -m pytest -s -m slow tests/slow/test_fuzz.py

test-memory: venv  ## memory with big corpora (10 minutes)
	$(BIN)/python -m pytest -s -m slow tests/slow/test_memory.py

test-formats: venv  ## 10,000 pairs through every format; 10,000 damaged files of each; the readers' memory (minutes)
	$(BIN)/python -m pytest -s -m slow tests/data/readers tests/slow/test_fuzz_readers.py tests/slow/test_reader_memory.py

test-folders: venv  ## commands started in odd folders (minutes)
	$(BIN)/python -m pytest -m slow tests/slow/test_working_folder.py tests/slow/test_wheel.py

test-recipes: venv  ## every command of docs/recipes.md on a dozen pairs (minutes)
	$(BIN)/python -m pytest -m slow tests/test_recipes.py

test-long: venv  ## the tests beside the fast ones that take ten seconds or more each: lost ranks, other signals (minutes)
	$(BIN)/python -m pytest -m slow tests --ignore tests/slow

test-browser: venv  ## mt serve's page in headless Chromium (apt-get install chromium), with runs/demo (minutes)
	$(BIN)/python -m pytest -m slow tests/slow/test_browser.py

coverage: venv  ## the fast tests with the lines of mt/ that none of them runs
	$(BIN)/python -m pytest -q -m "not slow" --cov=mt --cov-report=term-missing:skip-covered

bench-train: venv  ## training speed beside peers, on an otherwise idle machine (an hour)
	scripts/bench_peers.sh --source data/multi30k/train.en.gz --target data/multi30k/train.de.gz

bench-serve: venv  ## mt serve under 1, 8 and 64 clients, with runs/demo, on an otherwise idle machine (20 minutes)
	$(BIN)/python scripts/bench_serve.py runs/demo --source data/tatoeba_en_zh/test.tsv

gpu-check: venv  ## check and time the GPU's path (8 minutes)
	PYTHON=$(BIN)/python scripts/gpu_check.sh

lint: venv  ## find faults in form
	$(BIN)/ruff check .

format: venv  ## mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove .venv and caches; keeps runs/ and data/
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .coverage build dist
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "mt needs Python 3.11 or newer: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,demo,documents,plot,corpora,cleaning,serve]'
	touch $@

.PHONY: help venv demo test test-demo test-multi30k test-faults test-hosts test-big-files test-fuzz test-memory test-formats test-folders test-recipes test-long test-browser coverage bench-train bench-serve gpu-check lint format clean
