"""Warm and cold starts of the same job, in and out of a sandbox."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from tidemill_runtime import channel

DUMP = r"""
import os, sys
main = sys.modules["__main__"]
found = {name: type(value).__name__ if name == "__loader__" else repr(value)
         for name, value in sorted(vars(main).items()) if name not in ("main", "os", "sys")}
import tensorflow
import gc, importlib, json, locale, resource, signal, site, sysconfig, threading, time
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
kept = ("Umask", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Uid", "Gid", "Groups", "SigBlk",
        "SigIgn", "SigCgt", "Cpus_allowed", "Seccomp")
streams = {}
for name in ("stdin", "stdout", "stderr"):
    stream = getattr(sys, name)
    streams[name] = (stream.name, stream.mode, stream.encoding, stream.errors, stream.line_buffering,
                     stream.write_through, type(stream.buffer).__name__, stream is getattr(sys, f"__{name}__"))
print(json.dumps({
    "main": found,
    "main is us": main.__dict__ is globals(),
    "environment": dict(os.environ),
    "c environment": sorted(os.popen("env -0").read().split("\0")),
    "argv": sys.argv,
    "orig_argv": sys.orig_argv,
    "cwd": os.getcwd(),
    "path": sys.path,
    "flags": str(sys.flags),
    "prefix": [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.executable],
    "packages": [sysconfig.get_paths(), site.getsitepackages()],
    "signals": {int(number): repr(signal.getsignal(number)) for number in signal.valid_signals()},
    "descriptors": {fd: os.path.basename(os.readlink(f"/proc/self/fd/{fd}")).split(":")[0]
                    for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")},
    "status": {name: status[name].strip() for name in kept},
    "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name[:7] == "RLIMIT_"},
    "session": os.getsid(0) == os.getpgid(0) == os.getpid(),
    "namespaces": {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in sorted(os.listdir("/proc/self/ns"))},
    "cgroup": open("/proc/self/cgroup").read(),
    "host": os.uname().nodename,
    "root": sorted(os.listdir("/")),
    "streams": streams,
    "threads": [threading.active_count(), threading.current_thread() is threading.main_thread()],
    "excepthook": sys.excepthook.__qualname__,
    "hooks": [sys.displayhook.__name__, repr(sys.gettrace()), repr(sys.getprofile()), repr(threading.excepthook)],
    "recursion": [sys.getrecursionlimit(), gc.isenabled(), gc.get_threshold()],
    "zone": time.tzname,
    "locale": locale.setlocale(locale.LC_ALL),
    "meta": [len(sys.meta_path), len(sys.path_hooks)],
    "nice": os.getpriority(os.PRIO_PROCESS, 0),
    "dumpable": os.stat("/proc/self/status").st_uid,
}))
"""

PROCESS_NUMBERS = {"namespaces"}
"""Fields that differ between two cold runs as well, if each has its own sandbox."""


@pytest.fixture(scope="module")
def zygote(job_python):
    """Yield the socket of a process that has imported TensorFlow, in the environment of the jobs."""
    with tempfile.TemporaryDirectory(prefix="warm") as place:
        path = Path(place) / "socket"
        home = Path(place) / "home"
        home.mkdir()
        command = [job_python, "-m", "tidemill_runtime", "warm", "--socket", str(path), "--import", "tensorflow"]
        variables = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
        process = subprocess.Popen(command, env=variables, cwd=place, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        lines = []
        for line in process.stderr:
            lines.append(line)
            if b"warm.ready" in line:
                break
        else:
            pytest.fail(b"".join(lines).decode())
        yield path
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture
def warm_job(job, zygote):
    job.variables.update(TIDEMILL_WARM_SOCKET=str(zygote), LANG="C.UTF-8", HOME=str(job.base / "home"))
    (job.base / "home").mkdir()
    job.own_environment()
    return job


def both(job, *prefix):
    """Return the JSON that the script prints, warm and cold."""
    results = []
    socket = job.variables["TIDEMILL_WARM_SOCKET"]
    for name in ("warm", "cold"):
        job.variables.pop("TIDEMILL_WARM_SOCKET", None)
        # Every job has its own HOME, but the previous run has left Keras's settings in this one.
        shutil.rmtree(Path(job.variables["HOME"]) / ".keras", ignore_errors=True)
        if name == "warm":
            job.variables["TIDEMILL_WARM_SOCKET"] = socket
        result = subprocess.run(
            [*prefix, *job.command], env=job.environment, cwd=job.base, capture_output=True, timeout=120, check=False
        )
        assert result.returncode == 0, result.stderr.decode()
        assert b"warm.skipped" not in result.stderr, result.stderr.decode()
        results.append(json.loads(result.stdout))
    job.variables["TIDEMILL_WARM_SOCKET"] = socket
    return results


def differences(warm, cold):
    """Return the differences by name and field."""
    found = {}
    for name in warm:
        if isinstance(warm[name], dict):
            parts = {key: (warm[name].get(key), cold[name].get(key)) for key in {**warm[name], **cold[name]}}
            found.update({f"{name} {key}": pair for key, pair in parts.items() if pair[0] != pair[1]})
        elif warm[name] != cold[name]:
            found[name] = (warm[name], cold[name])
    return found


def lasting_differences(compare, tries=8):
    """Return the differences that occur every time: a cold import sometimes has a pipe open for a moment."""
    found = {}
    for _ in range(tries):
        found = differences(*compare())
        if not found:
            break
    return found


def sandbox(job):
    bound = [part for path in (job.base, job.variables["HOME"]) for part in ("--bind", str(path), str(path))]
    namespaces = ["--unshare-user", "--unshare-pid", "--unshare-uts", "--unshare-ipc", "--die-with-parent"]
    hidden = ["--tmpfs", "/mnt"]
    system = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    return ["bwrap", *namespaces, "--hostname", "algo-1", "--cap-drop", "ALL", *system, *hidden, *bound, "--"]


def test_a_warm_script_has_the_same_environment_as_a_cold_one(warm_job):
    warm_job.script(DUMP)
    warm_job.hyperparameters(epochs="3", name='"a b"')
    warm_job.variables.update(TZ="Asia/Tokyo", MINE="1", PYTHONPATH="/somewhere")
    assert lasting_differences(lambda: both(warm_job)) == {}


def test_a_warm_script_is_in_the_sandbox_of_its_job(need, warm_job):
    need("bubblewrap")
    warm_job.script(DUMP)
    warm, _ = both(warm_job, *sandbox(warm_job))
    assert warm["host"] == "algo-1"
    own = {
        kind: os.readlink(f"/proc/self/ns/{kind}")  # noqa: PTH115
        for kind in ("mnt", "pid", "user", "uts", "ipc")
    }
    assert all(warm["namespaces"][kind] != link for kind, link in own.items())
    assert int(warm["status"]["CapEff"], 16) == 0

    def comparable():
        pair = both(warm_job, *sandbox(warm_job))
        return [{name: value for name, value in dump.items() if name not in PROCESS_NUMBERS} for dump in pair]

    assert lasting_differences(comparable) == {}


def test_tensorflow_trains_and_saves_in_a_warm_sandbox(need, warm_job):
    need("bubblewrap")
    warm_job.script("""
        import json, os
        import keras, numpy as np, tensorflow as tf
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        x = np.arange(256, dtype="float32").reshape(64, 4) / 256
        data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(8).prefetch(2)
        history = model.fit(data, epochs=2, verbose=0)
        model.save(os.path.join(os.environ["SM_MODEL_DIR"], "m.keras"))
        print(json.dumps(history.history["loss"]))
    """)
    warm, cold = both(warm_job, *sandbox(warm_job))
    assert warm == cold
    assert (warm_job.base / "model" / "m.keras").exists()


def test_each_script_draws_new_random_state(warm_job):
    warm_job.script("""
        import json, random, uuid
        import numpy as np, tensorflow as tf
        print(json.dumps([random.random(), float(np.random.rand()), float(tf.random.normal([])), str(uuid.uuid4())]))
    """)
    first, second = json.loads(warm_job.run().stdout), json.loads(warm_job.run().stdout)
    assert all(a != b for a, b in zip(first, second))  # noqa: B905


ENDS = {
    "returns": "print('done')",
    "exception": "def f():\n    raise ValueError('bad')\nf()",
    "syntax": "x = (",
    "exit status": "import sys; sys.exit(3)",
    "exit text": "import sys; sys.exit('no data')",
    "os._exit": "import os; os.write(2, b'last'); os._exit(4)",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "crash": "import os; os.kill(os.getpid(), 11)",
    "interrupted": "raise KeyboardInterrupt",
    "atexit and threads": """
        import atexit, threading, time
        atexit.register(print, "atexit")
        threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
        print("no newline at the end", end="")
    """,
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise RuntimeError('outer') from error",
}


@pytest.mark.parametrize("name", ENDS)
def test_a_warm_script_ends_as_a_cold_one(warm_job, name):
    warm_job.script(ENDS[name])
    ends = []
    for variables in ({}, {"TIDEMILL_WARM_SOCKET": ""}):
        warm_job.variables.update(variables)
        result = warm_job.run()
        failure = warm_job.base / "output" / "failure"
        ends.append((result.returncode, result.stdout, result.stderr, failure.exists() and failure.read_text()))
        shutil.rmtree(warm_job.base / "output")
    assert b"warm.skipped" not in ends[0][2]
    assert ends[0] == ends[1]


def test_multiprocessing_and_pickle_find_main(warm_job):
    warm_job.script("""
        import json, multiprocessing, pickle
        class Mine:
            pass
        def double(x):
            return 2 * x
        if __name__ == "__main__":
            values = []
            for method in ("spawn", "fork"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    values.append(pool.map(double, [1, 2]))
            print(json.dumps([values, type(pickle.loads(pickle.dumps(Mine()))) is Mine]))
    """)
    warm, cold = both(warm_job)
    assert warm == cold == [[[2, 4], [2, 4]], True]


def test_a_stop_reaches_a_warm_script(warm_job):
    warm_job.script("""
        import os, signal, sys, time
        signal.signal(signal.SIGTERM, lambda number, frame: (os.write(1, b"got it\\n"), sys.exit(0)))
        os.write(1, b"ready\\n")
        while True:
            time.sleep(1)
    """)
    process = warm_job.start()
    assert process.stdout.readline() == b"ready\n"
    process.terminate()
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, b"got it\n"), errors


def test_a_warm_script_and_its_children_die_with_the_runtime(warm_job):
    warm_job.script("""
        import os, subprocess, time
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        os.write(1, b"%d %d\\n" % (os.getpid(), child.pid))
        time.sleep(600)
    """)
    process = warm_job.start()
    pids = [int(pid) for pid in process.stdout.readline().split()]
    pid_fds = [os.pidfd_open(pid) for pid in pids]
    process.kill()
    process.communicate(timeout=60)
    for fd in pid_fds:
        assert select.select([fd], [], [], 60)[0]
        os.close(fd)


def skipped(job):
    result = job.run()
    line = next((line for line in result.stderr.decode().splitlines() if "warm.skipped" in line), "")
    assert result.returncode == 0, result.stderr.decode()
    return line


@pytest.mark.parametrize("name", ["TF_ENABLE_ONEDNN_OPTS", "OMP_NUM_THREADS", "XLA_FLAGS", "PYTHONHASHSEED", "LC_ALL"])
def test_a_variable_that_is_read_at_import_makes_the_start_cold(warm_job, name):
    warm_job.script("pass")
    warm_job.variables[name] = {"LC_ALL": "C"}.get(name, "1")
    assert ("locale" if name == "LC_ALL" else name) in skipped(warm_job)


def test_an_absent_zygote_makes_the_start_cold(warm_job, tmp_path):
    warm_job.script("pass")
    warm_job.variables["TIDEMILL_WARM_SOCKET"] = str(tmp_path / "none")
    assert "does not answer" in skipped(warm_job)


def test_commands_and_overlays_start_cold(warm_job):
    warm_job.code("run.sh", "#!/bin/sh\n")
    warm_job.hyperparameters(sagemaker_program="run.sh")
    assert "only a Python script" in skipped(warm_job)
    warm_job.script("pass")
    warm_job.hyperparameters()
    warm_job.variables["TIDEMILL_OVERLAY"] = str(Path(warm_job.python).parent.parent)
    assert "only a Python script" in skipped(warm_job)


def test_gpus_make_the_start_cold(warm_job):
    tools = warm_job.base / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\necho 'GPU 0: Tide'\n")
    (tools / "nvidia-smi").chmod(0o755)
    warm_job.script("pass")
    warm_job.variables["PATH"] = f"{tools}:{os.environ['PATH']}"
    assert "GPUs" in skipped(warm_job)


def test_the_socket_is_private_and_survives_invalid_requests(warm_job, zygote):
    assert zygote.stat().st_mode & 0o777 == 0o600
    with socket.socket(socket.AF_UNIX) as rude:
        rude.connect(str(zygote))
        with contextlib.suppress(OSError):
            rude.sendall(b"\xff" * 4096)
            rude.recv(4096)
    warm_job.script("print('ran')")
    assert skipped(warm_job) == ""


def test_a_request_from_another_process_than_the_connected_one_is_refused(zygote):
    """Otherwise a process could send requests for a process outside its sandbox."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(zygote))
        assert channel.receive(connection).content["protocol"] == 1
        child = os.fork()
        if child == 0:
            channel.send(connection, {"argv": [], "variables": {}, "directory": "/", "file": "x"})
            os._exit(0)
        os.waitpid(child, 0)
        assert "asked over a connection of" in channel.receive(connection).content["refused"]


def test_modules_that_start_threads_prevent_a_fork(job_python, tmp_path):
    (tmp_path / "threaded.py").write_text(
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    command = [job_python, "-m", "tidemill_runtime", "warm", "--socket", str(tmp_path / "s"), "--import", "threaded"]
    variables = {"PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"]}
    result = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert result.stderr.startswith("ConfigurationError: the imports left 1 threads")


def test_sigkill_to_a_warm_script_is_reported(warm_job):
    warm_job.script("import os, time; os.write(1, b'%d\\n' % os.getpid()); time.sleep(600)")
    process = warm_job.start()
    os.kill(int(process.stdout.readline()), signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Process killed by SIGKILL" in warm_job.failure
