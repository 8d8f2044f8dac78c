"""When compiling begins: it must be a small part of the training that has been, or that will certainly be."""

import json
import math
import os
import subprocess
import sys

import pytest

import forked_scripts
from tidemill_tensorflow.compiler.variants.payback import MAX_COST, MIN_RUNS, VARIABLE, Account, Ledger, max_cost_of

SIZE = 1000
STEP_S = 0.01


def account_of(ledger: Ledger | None = None) -> Account:
    account = Account(ledger or Ledger())
    account.size = SIZE
    return account


def runs_until_compiling(account: Account, step_s: float = STEP_S, *, at_most: int = 10**5) -> int | None:
    for number in range(at_most):
        if account.may_begin():
            return number
        account.train(step_s)
    return None


def test_a_training_of_unknown_length_is_compiled_when_the_cost_is_a_small_share_of_its_time() -> None:
    account = account_of()
    runs = runs_until_compiling(account)
    assert runs is not None
    assert account.cost_s <= MAX_COST * account.trained_s <= 1.2 * account.cost_s, "not much later than allowed"
    slower = runs_until_compiling(account_of(), 10 * STEP_S)
    assert slower is not None and slower < runs, "longer steps pay earlier"


def test_steps_that_fit_will_certainly_run_count_from_the_start() -> None:
    account = account_of()
    account.promise(10**5)
    assert runs_until_compiling(account) == MIN_RUNS
    short = account_of()
    short.promise(90)
    assert runs_until_compiling(short, at_most=90) is None


def test_a_slow_first_call_is_no_measure_of_the_steps_to_come() -> None:
    account = account_of()
    account.train(30.0)  # TensorFlow optimizes the function
    account.promise(1000)
    for _ in range(MIN_RUNS):
        account.train(STEP_S)
    assert account.to_come_s == pytest.approx((1000 - MIN_RUNS) * STEP_S)


def test_many_functions_that_die_young_are_never_compiled() -> None:
    ledger = Ledger()
    assert all(runs_until_compiling(account_of(ledger), at_most=100) is None for _ in range(100))
    assert ledger.trained_s == pytest.approx(100 * 100 * STEP_S)


def test_what_was_spent_on_other_functions_counts() -> None:
    ledger = Ledger()
    first, second = account_of(ledger), account_of(ledger)
    alone = runs_until_compiling(first)
    first.spend(20.0)  # far more than estimated
    beside = runs_until_compiling(second)
    assert alone is not None and beside is not None and beside > 4 * alone


def test_estimates_follow_what_compiling_took_in_this_process() -> None:
    ledger = Ledger()
    first, second = account_of(ledger), account_of(ledger)
    before = second.cost_s
    first.learn(5 * before)
    assert second.cost_s > 3 * before
    first.learn(1e6)
    assert second.cost_s < 10 * before, "one hanging compilation does not end all others"
    first.learn(0.0)
    assert second.cost_s == before


def test_a_rare_shape_must_pay_by_its_own_steps() -> None:
    account = account_of()
    while not account.may_add_shape(1.0):
        account.train(STEP_S)
    assert not account.may_add_shape(0.5)


def test_work_begins_at_once_without_a_limit_and_never_with_a_share_of_zero() -> None:
    assert account_of(Ledger(math.inf)).may_begin()
    assert runs_until_compiling(account_of(Ledger(0.0)), at_most=1000) is None


@pytest.mark.parametrize(("given", "text", "share"), [(None, "", MAX_COST), (None, "inf", math.inf), (0.5, "inf", 0.5)])
def test_the_share_comes_from_the_argument_or_the_environment(
    monkeypatch: pytest.MonkeyPatch, given: float | None, text: str, share: float
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    assert max_cost_of(given) == share


@pytest.mark.parametrize(("given", "text"), [(-1.0, ""), (math.nan, ""), (None, "soon"), (None, "-1")])
def test_a_share_that_is_none_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, given: float | None, text: str
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ValueError, match=f"(max_cost is {given}|{VARIABLE} is '{text}'): give a share"):
        max_cost_of(given)


SCRIPT = """
import json, math, os, sys, threading, time
import tidemill_tensorflow
tidemill_tensorflow.compile_training(report_dir=sys.argv[1])
import keras
import numpy as np
import tensorflow as tf
import tf_keras
from keras.src.trainers import trainer
from tidemill_tensorflow import compiler
from tidemill_tensorflow.compiler import background

session = compiler._sessions[0]
ledger = session.ledger
found, steps = {}, 0

def cores():
    return sorted({len(os.sched_getaffinity(thread)) for thread in background.xla_threads()})

def generate(name):
    with background.beside_training():
        found[name] = cores()
        found[f"nice of {name}"] = sorted({os.getpriority(os.PRIO_PROCESS, each) for each in background.xla_threads()})

class Stop(Exception):
    pass

class Clock:
    now = 0.0
    def __call__(self):
        self.now += 0.5
        return self.now

ledger.clock = Clock()

def run(library, number, *, promised=1, stops=(), limit=None, at=None, jit=None):
    global steps
    library.utils.set_random_seed(3)
    layers = library.layers
    model = library.Sequential([library.Input([6]), layers.Dense(8, "gelu"), layers.Dropout(0.3), layers.Dense(1)])
    model.compile("adam", "mse", **({} if jit is None else {"jit_compile": jit}))
    losses, count = [], len(session.steps)

    class Watch(library.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            losses.append(float(logs["loss"]))
            session.wait_for_background()
            if len(losses) == number:
                raise Stop
            if len(losses) == at:
                ledger.max_cost = math.inf

    generator = np.random.default_rng(0)
    data = generator.random((80, 6)).astype("float32"), generator.random((80, 1)).astype("float32")
    try:
        model.fit(*data, batch_size=8, epochs=promised, shuffle=False, verbose=0, callbacks=[Watch(), *stops])
    except Stop:
        pass
    ledger.max_cost = 0.04
    functions = session.as_dict()["functions"][count:]
    return losses, functions

found["short"] = run(keras, 10)[1]
background.first_compilation(tf.function(lambda: tf.constant(1) + 1, jit_compile=True))  # XLA's threads start
session.run_in_background(session.steps[0], lambda: generate("awaited"), wait=True)
found["long"] = run(keras, 10, promised=1000)[1]
found["uncertain"] = run(keras, 10, promised=1000, stops=[keras.callbacks.EarlyStopping("loss", patience=3)])[1]
found["unsplit"] = run(keras, 300, promised=30)[1]
found["noise"] = [run(tf_keras, 100, promised=20, jit=False)[0], *run(tf_keras, 100, promised=20, at=15)]
resolve = trainer.Trainer._resolve_auto_jit_compile
trainer.Trainer._resolve_auto_jit_compile = lambda self: trainer.model_supports_jit(self)  # as on a GPU
found["keras"] = run(keras, 10)[1]
found["keras decides"] = [run(keras, 200, promised=30, jit=False)[0], *run(keras, 200, promised=30, at=15)]
found["script"] = run(keras, 10, jit=True)[1]

def beside():
    with background.beside_training():
        found["beside training"] = cores()
        begun.set()
        while not background._Waiting.steps:
            time.sleep(0.01)
        with background._Waiting.lock:
            found["then awaited"] = cores()

begun = threading.Event()
session.run_in_background(session.steps[0], beside)
assert begun.wait(60)
session.run_in_background(session.steps[0], lambda: generate("awaited after it"), wait=True)
found["free"] = cores()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Trainings in one process. By the injected clock, each step takes half a second."""
    report = tmp_path_factory.mktemp("report")
    ended = forked_scripts.start(SCRIPT, report, **{VARIABLE: ""}).wait()
    return {
        **json.loads(ended.stdout.splitlines()[-1]),
        "log": ended.stderr,
        "text": (report / "report.txt").read_text(),
    }


def test_a_short_fit_is_left_alone_and_a_long_one_is_compiled_after_a_few_steps(found: dict[str, object]) -> None:
    (short,), (long,) = found["short"], found["long"]
    assert (short["shapes"], short["compiling_s"], short["fallback"]) == ([], 0, None)
    reason = "not compiled: 5.0 s of steps, and compiling (about "
    assert short["not_compiled"].startswith(reason)
    assert f"  {reason}" in found["text"] and f"multi_step_on_iterator (10 steps): plain, {reason}" in found["log"]
    (shape,) = long["shapes"]
    assert shape["compile_s"] > 0 and long["not_compiled"] is None
    assert shape["calls"] in (9 - MIN_RUNS, 10 - MIN_RUNS), "it was split during the first step that could pay"


def test_a_fit_that_a_callback_may_stop_promises_nothing(found: dict[str, object]) -> None:
    (uncertain,) = found["uncertain"]
    assert (uncertain["shapes"], uncertain["compiling_s"]) == ([], 0)


def test_a_fit_that_is_too_short_stays_plain_to_its_end(found: dict[str, object]) -> None:
    (unsplit,) = found["unsplit"]
    assert (unsplit["steps"], unsplit["shapes"]) == (300, [])


def test_noise_by_a_state_goes_on_with_the_same_numbers_when_a_long_training_is_split(found: dict[str, object]) -> None:
    plain, compiled, (function,) = found["noise"]
    assert compiled == pytest.approx(plain, rel=1e-4)
    (shape,) = function["shapes"]
    assert 20 < shape["calls"] < 90, "the first steps ran whole, and so may those after a decision for plain"


def test_a_step_that_keras_compiles_begins_with_xla_at_once(found: dict[str, object]) -> None:
    (function,) = found["keras"]
    (shape,) = function["shapes"]
    assert function["fallback"] is None
    assert (shape["steps_by_variant"], shape["decision"], shape["fallback"]) == ({"xla": 10}, None, None)


def test_the_compiler_decides_about_a_step_that_keras_compiles(found: dict[str, object]) -> None:
    plain, compiled, (function,) = found["keras decides"]
    assert compiled == pytest.approx(plain, rel=1e-4), "also the dropout"
    (shape,) = function["shapes"]
    assert shape["decision"] is not None and shape["rounds"] >= 6
    assert shape["steps_by_variant"]["xla"] > 15 and shape["steps_by_variant"].keys() == {"plain", "xla", "fused"}


def test_a_step_that_the_script_compiles_is_left_alone(found: dict[str, object]) -> None:
    assert found["script"] == []


def test_xla_generates_code_on_one_core_at_low_priority_unless_a_step_waits(found: dict[str, object]) -> None:
    every = [len(os.sched_getaffinity(0))]
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert (found["awaited"], found["nice of awaited"]) == (every, [own])
    assert found["beside training"] == [1]
    assert found["then awaited"] == found["awaited after it"] == found["free"] == every
    assert found["nice of awaited after it"] == [own + 3], "Linux lets only root take that back"


EXIT = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import tidemill_tensorflow
tidemill_tensorflow.compile_training(report_dir=sys.argv[1])
import threading
import tensorflow as tf
from tidemill_tensorflow.compiler.graphs import functions

begun, queue = threading.Event(), tf.queue.FIFOQueue(1, tf.float32)

def without_end(*arguments):
    begun.set()
    queue.dequeue()  # in TensorFlow's code, as a compilation

functions.warm_up = without_end
weight = tf.Variable(2.0)

@tf.function
def train_step():
    with tf.GradientTape() as tape:
        loss = weight * weight
    weight.assign_sub(0.1 * tape.gradient(loss, weight))

while not begun.is_set():
    train_step()
sys.stdout.write("the last words")
sys.exit(3)
"""


def test_a_process_does_not_wait_at_its_end_for_a_compilation(tmp_path: object) -> None:
    command = [sys.executable, "-c", EXIT, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stdout) == (3, "the last words"), ended.stderr
    assert "train_step (" in ended.stderr.splitlines()[-1]
    assert json.loads((tmp_path / "report.json").read_text())["functions"][0]["name"] == "train_step"
