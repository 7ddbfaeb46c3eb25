# Everything runs inside .venv; no target needs anything to be activated.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: install demo test faults cluster docs docs-commands lint package clean

install: $(STAMP)

# torch comes first and by its pin, so that whichever build of that version pip finds is the one that stays.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,images]'
	touch $(STAMP)

demo: install
	$(BIN)/splitpu demo

lint: install
	$(BIN)/ruff check .
	$(BIN)/mypy

# One thread each: two workers that both ask for every core only wait for one another.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

# Wheel and sdist, and the wheel tried alone in an empty environment.
package:
	PYTHON=$(PYTHON) .ci/package

# Kills, damaged and hostile files, power losses: about twenty minutes on two cores. Other seeds try other ones.
SEED ?= 0
faults: install
	OMP_NUM_THREADS=1 $(BIN)/python tests/faults/campaign.py --seed $(SEED)

# Runs and scores over a real Ray cluster of two nodes on this machine, the commands that the pages show for one, their
# scripts for Slurm (where it is installed: slurm-wlm and munge), and the loggers, in an environment of their own.
CLUSTER := .venv-cluster
cluster:
	test -x $(CLUSTER)/bin/pytest || $(PYTHON) -m venv $(CLUSTER)
	$(CLUSTER)/bin/python -m pip install --quiet -c constraints.txt torch==2.13.0
	$(CLUSTER)/bin/python -m pip install --quiet -c constraints.txt -e '.[cluster,images,tables,tensorboard,mlflow]' 'ray[train]' pytest hypothesis
	DOCS_COMMANDS=all OMP_NUM_THREADS=1 $(CLUSTER)/bin/pytest tests/test_docs_commands.py -k CLUSTER
	OMP_NUM_THREADS=1 $(CLUSTER)/bin/pytest tests/runs/test_cluster.py tests/runs/test_scoring.py tests/runs/test_slurm.py \
		tests/runs/test_loggers.py tests/test_tutorials.py -k 'not every_block or cluster or processes'

# The site of docs/, with the Python reference from the docstrings, into build/site; a warning ends the build.
SITE := .venv-docs
docs:
	test -x $(SITE)/bin/zensical || $(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet zensical mkdocs-material 'mkdocstrings[python]' ruff
	$(SITE)/bin/zensical build --strict --clean

# Every command that the pages show, on small files, those that take long, too; those of a cluster: make cluster. CIFAR-10
# is used where `splitpu data get cifar10` has fetched it, timm where it and its weights are there.
docs-commands: install
	DOCS_COMMANDS=all OMP_NUM_THREADS=1 $(BIN)/pytest tests/test_docs_commands.py

clean:
	rm -rf .venv .venv-cluster .venv-docs .cache build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
