"""Replaces tidemill-runtime in tests: runs the hyperparameter ``script``, and otherwise follows the contract."""

import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

with os.fdopen(int(os.environ["TIDEMILL_VARIABLES_FD"]), "rb") as file:
    VARIABLES = json.load(file)
BASE = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))


def train() -> int:
    hyperparameters = json.loads((BASE / "input/config/hyperparameters.json").read_text())
    requirements, needs = hyperparameters.get("requirements"), {}
    if requirements and "TIDEMILL_OVERLAY" not in VARIABLES:
        (BASE / "code/requirements.txt").write_text(requirements)
        needs = {"requirements": str(BASE / "code/requirements.txt")}
    with os.fdopen(int(VARIABLES.pop("TIDEMILL_NEEDS_FD")), "w") as pipe:
        json.dump(needs, pipe)
    if needs:
        return 75
    del VARIABLES["TIDEMILL_ENVIRONMENT"]
    command = sys.argv[3:] if sys.argv[2:3] == ["--"] else [sys.executable, "-c", hyperparameters["script"]]
    child = subprocess.Popen(command, start_new_session=True, cwd=BASE / "code", env=VARIABLES)

    def handle_control() -> None:
        while message := os.read(int(VARIABLES["TIDEMILL_CONTROL_FD"]), 1):
            if message == b"T":
                os.killpg(child.pid, signal.SIGTERM)
        os.killpg(child.pid, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=handle_control, daemon=True).start()
    status = child.wait()
    if status in (0, 75):  # 75: as if the script had ended the runtime with this status, by ptrace
        return status
    failure = BASE / "output/failure"
    if not failure.exists():
        failure.write_text(f'ExecuteUserScriptError:\nExitCode {status}\nErrorMessage "it failed"\nCommand "python"')
    return 1


def install() -> int:
    overlay, requirements = map(Path, sys.argv[2:4])
    print("installing", requirements.read_text().strip())
    if "broken" in requirements.read_text():
        print("no such package", file=sys.stderr)
        return 1
    (overlay / "bin").mkdir(parents=True, exist_ok=True)
    (overlay / "installed").write_text(requirements.read_text())
    return 0


def extract() -> int:
    try:
        with tarfile.open(sys.argv[2]) as archive:
            archive.extractall(sys.argv[3], **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    except tarfile.TarError as error:
        print("InvalidArchive:", *str(error).split(), file=sys.stderr)
        return 1
    return 0


sys.exit({"train": train, "install": install, "extract": extract}[sys.argv[1]]())
