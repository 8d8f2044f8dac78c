"""The choice of the engine, and its effect on the process."""

import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidemill_serving.engine import LoadedModel, Parallelism, c_api, c_library, open_engine
from tidemill_serving.errors import Code, RequestError, StartFailed
from tidemill_serving.options import read_options

FALLBACK_SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from tidemill_serving.engine import c_library, open_engine

c_library._SHORT_CALLS["TF_Absent"] = (None, ())
engine = open_engine()
model = engine.load(Path(sys.argv[1]))
(y,) = model.run(model.signatures["serving_default"], [np.array([2], np.float32)], pooled=False)
print(engine.name, y.tolist())
"""
LEAK_SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from tidemill_serving.engine import open_engine
from tidemill_serving.options import read_options
from tidemill_serving.errors import RequestError

def resident_kb():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1])

models = Path(sys.argv[1])
engine = open_engine("c_api")
text, checked = engine.load(models / "text/1"), engine.load(models / "checked/1")
words = np.array([b"w" * 4096] * 8, dtype=object)

def calls(number):
    for _ in range(number):
        text.run(text.signatures["serving_default"], [words], pooled=False)
        try:
            checked.run(checked.signatures["serving_default"], [np.full(1024, -1, np.float32)], pooled=False)
        except RequestError:
            pass

calls(1000)
before = resident_kb()
calls(10_000)
print(resident_kb() - before)
"""

THREADS_SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from tidemill_serving.engine import Parallelism, open_engine

engine = open_engine(sys.argv[2], parallelism=Parallelism(inter_op=int(sys.argv[3]), intra_op=int(sys.argv[4])))
model = engine.load(Path(sys.argv[1]))
model.run(model.signatures["serving_default"], [np.array([2], np.float32)], pooled=True)
print(len(list(Path("/proc/self/task").iterdir())))
"""


def run_script(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_the_c_library_is_the_default_and_the_log_names_it(models: Path) -> None:
    engine = open_engine()
    assert engine.name == "c_api"
    assert engine.description.startswith("TensorFlow 2.")


def test_only_the_messages_of_pythons_tensorflow_are_imported(models: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tidemill_serving.engine import open_engine;"
        "open_engine().load(Path(sys.argv[1]));"
        "print([name for name in sys.modules if name.startswith(('keras', 'pandas', 'tensorflow.python'))])"
    )
    done = run_script(code, models / "half_plus/123")
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_without_a_function_of_the_library_pythons_session_runs(models: Path) -> None:
    done = run_script(FALLBACK_SCRIPT, models / "half_plus/123")
    assert done.stdout == "session [3.0]\n"
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("engine.fallback engine=session")]
    assert "has no TF_Absent" in line


def test_a_missing_library_is_an_error_if_its_engine_is_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_library, "_FILE_NAME", "libtensorflow_absent.so")
    with pytest.raises(StartFailed, match=r"engine c_api does not work with this TensorFlow: there is no .*_absent"):
        open_engine("c_api")


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(StartFailed, match="'tfs' is not one of auto, c_api, session"):
        open_engine("tfs")


def test_the_variable_chooses_the_engine_unless_the_command_line_does() -> None:
    environment = {"TIDEMILL_SERVING_ENGINE": "session"}
    assert read_options([], environment).engine == "session"
    assert read_options(["--engine", "c_api"], environment).engine == "c_api"
    assert read_options([], {}).engine == "auto"


def test_the_log_names_the_engine_of_the_models(start: Any, models: Path) -> None:
    server = start(models / "half_plus")
    assert "by libtensorflow_cc.so.2, without Python's TensorFlow; " in server.line("engine.ready engine=c_api")


def test_ten_thousand_calls_leave_no_memory_behind(models: Path) -> None:
    """A lost tensor per call would be 40 MB of strings or floats, and about 400 MB with its other allocations."""
    assert int(run_script(LEAK_SCRIPT, models).stdout) < 10_000


@pytest.mark.parametrize("path", ["mlp/1", "keras_objects/1"])
def test_two_sessions_hold_each_variable_once(models: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read_variables = c_api._Session.read
    reads: list[dict[str, int]] = []

    def read(session: Any, variables: Mapping[str, int]) -> list[int]:
        tensors = read_variables(session, variables)
        addresses = map(session.library.functions.TF_TensorData, tensors)
        reads.append(dict(zip(variables, addresses, strict=True)))
        types.update(variables)
        return tensors

    types: dict[str, int] = {}
    monkeypatch.setattr(c_api._Session, "read", read)
    engine = c_api.CApiEngine(parallelism=Parallelism(), tags=["serve"])
    model = engine.load(models / path)
    twin = engine.load(models / path, twin_of=model)
    rows = np.load(models / f"{path.partition('/')[0]}.npz")["rows"]
    for each in (model, twin):
        each.run(each.signatures["serving_default"], [rows], pooled=False)
    twin.session.read(types)
    first, second = reads
    assert first == second
    assert len(set(first.values())) == len(types) > 2
    twin.close()
    model.close()


def test_variables_that_may_be_on_a_gpu_are_not_shared(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_api._Session, "num_devices", 2)
    monkeypatch.setattr(c_api._Session, "read", None)
    engine = c_api.CApiEngine(parallelism=Parallelism(), tags=["serve"])
    model = engine.load(models / "half_plus/123")
    assert not engine.shares_variables(model)
    twin = engine.load(models / "half_plus/123", twin_of=model)
    (answer,) = twin.run(twin.signatures["serving_default"], [np.array([2], np.float32)], pooled=False)
    assert answer.tolist() == [3.0]
    twin.close()
    model.close()


def test_a_second_session_takes_the_variables_while_the_first_one_runs(models: Path) -> None:
    engine = open_engine("c_api")
    known = np.load(models / "mlp.npz")
    model, is_over, wrong = engine.load(models / "mlp/1"), threading.Event(), []
    running = threading.Barrier(4, timeout=60)

    def answers(of: LoadedModel, *, pooled: bool) -> bool:
        (found,) = of.run(of.signatures["serving_default"], [known["rows"]], pooled=pooled)
        return np.allclose(found, known["answers"], atol=1e-6)

    def keep_running(pooled: bool) -> None:
        wrong.extend([] if answers(model, pooled=pooled) else ["before"])
        running.wait()
        while not is_over.is_set():
            wrong.extend([] if answers(model, pooled=pooled) else ["beside"])

    threads = [threading.Thread(target=keep_running, args=(pooled,)) for pooled in (False, True, False)]
    for thread in threads:
        thread.start()
    running.wait()
    twin = engine.load(models / "mlp/1", twin_of=model)
    assert answers(twin, pooled=False)
    is_over.set()
    for thread in threads:
        thread.join()
    assert not wrong
    twin.close()
    model.close()


def test_signatures_declare_whether_rows_may_share_a_run(models: Path) -> None:
    engine = open_engine(parallelism=Parallelism(inter_op=1, intra_op=1))
    batchable = {
        name: engine.load(models / name).signatures["serving_default"].batchable
        for name in ("half_plus/123", "two_inputs/1", "spin/1", "mlp/1")
    }
    assert batchable == {"half_plus/123": True, "two_inputs/1": True, "spin/1": False, "mlp/1": True}


@pytest.mark.parametrize("engine", ["c_api", "session"])
def test_tensorflow_creates_the_requested_number_of_threads(models: Path, engine: str) -> None:
    few, inter_op, intra_op = (
        int(run_script(THREADS_SCRIPT, models / "half_plus/123", engine, *threads).stdout)
        for threads in ((1, 1), (7, 1), (1, 7))
    )
    assert (inter_op - few, intra_op - few) == (6, 6)


def test_error_codes_keep_their_http_status() -> None:
    assert RequestError(Code.of(5), "gone").http_status == 404
    assert Code.of(99) is Code.UNKNOWN
