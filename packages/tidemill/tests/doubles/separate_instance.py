"""``python separate_instance.py DIRECTORY``: one instance of the separate executor, the counterpart of a shim.

It begins at the end of its input, runs the hyperparameter ``script`` (training), or ``serve.py`` of the model
(endpoint), and reports through files below its directory, which only it and its executor use.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

directory = Path(sys.argv[1])
ml = directory / "ml"
phases: list[dict[str, object]] = []
stopped = False


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def write(name: str, value: object) -> None:
    temporary = directory / f"{name}.tmp"
    temporary.write_text(json.dumps(value))
    temporary.replace(directory / name)


def enter(status: str) -> None:
    phases.append({"status": status, "started_ms": now_ms(), "message": status})
    write("phases.json", phases)


def end(outcome: str, failure: str, artifacts: dict[str, dict[str, object]]) -> None:
    write("exit.json", {"outcome": outcome, "failure": failure, "ended_ms": now_ms(), "artifacts": artifacts})


def run(command: list[str]) -> int:
    """Run the user's code, log every line of its output, and pass SIGTERM on to it."""
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "SAGEMAKER_BASE_DIR": str(ml)},
        cwd=directory,  # the path of a socket has at most 107 bytes
    )

    def stop(*_: object) -> None:
        global stopped
        stopped = True
        child.terminate()

    signal.signal(signal.SIGTERM, stop)
    if (directory / "stop.json").exists():
        stop()
    assert child.stdout is not None
    with (directory / "log").open("ab", buffering=0) as log:
        for line in child.stdout:
            log.write(b"%d %b\n" % (now_ms(), line.rstrip(b"\n")))
    return child.wait()


def pack(name: str, source: Path) -> dict[str, dict[str, object]]:
    if not any(source.iterdir()):
        return {}
    target = directory / f"{name}.tar.gz"
    with tarfile.open(target, "w:gz") as archive:
        for each in sorted(source.iterdir()):
            archive.add(each, arcname=each.name)
    data = target.read_bytes()
    digests = {"sha256": hashlib.sha256(data).hexdigest(), "md5": hashlib.md5(data).hexdigest()}
    return {name: {"size_bytes": len(data), **digests}}


def train(script: str) -> None:
    enter("Downloading")
    (ml / "input").mkdir(parents=True)
    (directory / "inputs").rename(ml / "input/data")
    for made in ("model", "output/data"):
        (ml / made).mkdir(parents=True)
    enter("Training")
    status = run([sys.executable, "-c", script])
    enter("Uploading")
    failed = status != 0 and not stopped
    artifacts = {**({} if failed else pack("model", ml / "model")), **pack("output", ml / "output/data")}
    outcome = "stopped" if stopped else "failed" if failed else "completed"
    end(outcome, f"AlgorithmError: exit status {status}" if failed else "", artifacts)


def serve() -> None:
    (ml / "model").mkdir(parents=True)
    with tarfile.open(directory / "model.tar.gz") as archive:
        archive.extractall(ml / "model", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    enter("Serving")
    status = run([sys.executable, str(ml / "model/serve.py"), "--unix-socket", "serving.sock", "--archives", "."])
    end("stopped" if stopped else "failed", "" if stopped else f"AlgorithmError: exit status {status}", {})


sys.stdin.read()
enter("Starting")
spec = json.loads((directory / "spec.json").read_text())
if spec["kind"] == "endpoint":
    serve()
else:
    train(spec["script"])
