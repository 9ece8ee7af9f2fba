# Short names for the commands of README.md and docs/. `make mini` and `make test` are all that a new machine needs.
PYTHON ?= $(shell bash envs/python.sh)
BIN := .venv/bin
READY := .venv/.ready
# BM25's row comes first; MiniLM's is the longest wait of one core, at the end the other would have nothing to do.
FIRST := $(addsuffix /nfcorpus/standard.summary.tsv,results/evaluation/bm25-flat results/evaluation/all-minilm-l6-v2)
SNAKEMAKE := $(BIN)/snakemake
ANY = $$([ -x $(BIN)/python ] && echo $(BIN)/python || echo $(PYTHON))

.DEFAULT_GOAL := help
.PHONY: help mini test check-slow check-cluster check-gpu drill drill-input doctor docs pictures report mlflow mlflow-server format lint

help: ## these lines
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | sort | awk -F '\t' '{ printf "make %-14s %s\n", $$1, $$2 }'

mini: $(READY) ## set up what is missing, run the main job on real data, show the table
	@echo "$(SNAKEMAKE) --profile config/profiles/mini all"
	@$(SNAKEMAKE) --profile config/profiles/mini --prioritize $(FIRST) -- all; status=$$?; $(BIN)/python -m zerodr show; exit $$status

test: $(READY) ## the tests
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 -m "not slow and not cluster"

check-slow: $(READY) ## tests that take minutes each: kills at random moments, browser, tracking server, MiniLM over all of NFCorpus
	$(BIN)/python -m pytest -m slow

check-cluster: $(READY) ## a real Slurm with two nodes: same digests, faults, refusals (as root on Debian; installs Slurm)
	bash tests/cluster/cluster.sh install
	$(BIN)/python -m pytest -m cluster

check-gpu: ## one GPU: the CPU's results, tokens a second, waiting, against peers (no network), then the papers' stages on it
	@$(ANY) benchmarks/gpu.py --packages || { PYTHON="$(PYTHON)" bash envs/create.sh && touch $(READY); }
	@$(ANY) benchmarks/gpu.py --seconds 480 --json gpu.json
	@if $(ANY) -c "import pytest" 2>/dev/null; \
	then $(ANY) -m pytest -q -m "not slow" $(addprefix tests/unit/test_,$(addsuffix .py,finetune pretrain modir unit_training weighting_training fusing rem)); \
	else echo "stages of papers were not run: package pytest is missing"; fi

drill: $(READY) ## 500 faults in all stages of a small DAG, as a table (as root on Linux; minutes; it resumes)
	$(BIN)/python -m tests.drill.drill --faults 500

drill-input: $(READY) ## malformed collections, configurations, model folders and run files
	$(BIN)/python -m pytest tests/unit/test_bad_inputs.py

doctor: ## what this machine lacks, and how to mend it; installs nothing
	@PYTHONPATH=workflow/scripts $(ANY) -m zerodr.operations.doctor

docs: $(READY) ## the documentation in site/, built strictly: open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

pictures: $(READY) ## docs/pictures/* and docs/papers/items.md again; pages of finished results in Chromium
	$(BIN)/python docs/pictures/dag.py
	$(BIN)/python docs/pictures/results.py
	$(BIN)/python docs/pictures/judge_errors.py
	$(BIN)/python docs/pictures/idro_weights.py
	$(BIN)/python docs/pictures/items.py
	$(BIN)/python docs/pictures/screens.py

report: $(READY) ## results/report.html: table, figures, curves, warnings, cost in one file, for any browser, without a network
	@$(BIN)/python -m zerodr report

mlflow: $(READY) ## lineage in MLflow's own pages
	@[ ! -f results/lineage/link.json ] || echo "methods in MLflow: $$(tr -d '"' < results/lineage/link.json)"
	$(BIN)/mlflow ui --host 127.0.0.1 --port 5000 --backend-store-uri sqlite:///results/lineage/mlflow.db

mlflow-server: $(READY) ## lineage of a cluster: MLflow's server on PostgreSQL, on loopback, with a password
	bash envs/mlflow_server.sh start

format: $(READY) ## ruff and snakefmt, written to the files
	$(BIN)/ruff check --fix . && $(BIN)/ruff format . && $(BIN)/snakefmt Snakefile workflow/Snakefile workflow/rules

lint: $(READY) ## ruff, snakefmt, mypy, snakemake --lint
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/snakefmt --check Snakefile workflow/Snakefile workflow/rules
	$(BIN)/mypy && $(SNAKEMAKE) --lint

$(READY): envs/requirements.lock envs/create.sh pyproject.toml
	PYTHON="$(PYTHON)" bash envs/create.sh
	@touch $(READY)
