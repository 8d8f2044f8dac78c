"""Without a checkout: in a bare environment with the built wheel, the README's snippet trains, deploys and predicts.

It runs on the Python of the test run; `make matrix-python` repeats it on the others.
"""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path

import pytest

TRAIN = """
import argparse, importlib.util, os

import horovod.tensorflow as hvd
import smdistributed.modelparallel.tensorflow as smp
import tensorflow as tf
from sagemaker_tensorflow import PipeModeDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--model_dir")
arguments = parser.parse_args()
hvd.init()
smp.init({"partitions": 1, "microbatches": 1})
print("epochs", arguments.epochs, "ranks", hvd.size(), smp.size(), PipeModeDataset.__name__)
print("data", sorted(os.listdir(os.environ["SM_CHANNEL_TRAIN"])))
for name in ("horovod", "sagemaker_tensorflow", "smdistributed.modelparallel", "tidemill_runtime", "tidemill_serving"):
    print("runs", list(importlib.util.find_spec(name).submodule_search_locations)[0])
model = tf.keras.Sequential([tf.keras.layers.Input((64,)), tf.keras.layers.Dense(1, bias_initializer="ones")])
model.export(os.path.join(os.environ["SM_MODEL_DIR"], "1"))
"""
PAGE = "docs/how-to/replace-a-tensorflow-serving-image.md"


@pytest.fixture(scope="module")
def bare(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with an environment `env` that has the wheel and its dependencies at pinned versions."""
    directory = tmp_path_factory.mktemp("bare")
    uv = root / ".venv/bin/uv"
    build = ["build", "-q", "--no-build-isolation", "-p", sys.executable, "-o", directory, root / "packages/tidemill"]
    subprocess.run([uv, *build], check=True)
    (wheel,) = directory.glob("*.whl")
    subprocess.run([uv, "venv", "-q", "-p", sys.executable, directory / "env"], check=True)
    # Without hashes: constraints with hashes would require one for the wheel, too.
    pins = directory / "pins.txt"
    lines = (root / "requirements/dev.txt").read_text().splitlines()
    pins.write_text("\n".join(line.removesuffix("\\").strip() for line in lines if line[:1].isalpha()))
    subprocess.run([uv, "pip", "install", "-q", "-p", directory / "env", "-c", pins, wheel], check=True, cwd=directory)
    return directory


@pytest.fixture(scope="module")
def variables(bare: Path) -> dict[str, str]:
    """Return the environment of a user with an empty HOME, who has the environments of jobs that are already built."""
    passed_on = ("PATH", "SSL_CERT_FILE", "PIP_CERT", "TIDEMILL_ENVIRONMENTS_DIR")
    home = bare / "home"
    home.mkdir()
    return {name: os.environ[name] for name in passed_on if name in os.environ} | {
        "HOME": str(home),
        "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache/uv")),
        "TIDEMILL_PORT": "0",
    }


def test_the_wheel_was_built_from_its_source_archive_and_brings_every_in_job_distribution(bare: Path) -> None:
    assert list(bare.glob("tidemill-*.tar.gz"))
    (wheel,) = bare.glob("*.whl")
    names = [Path(name) for name in zipfile.ZipFile(wheel).namelist()]
    brought = {name.name.partition("-")[0] for name in names if name.suffix == ".whl"}
    assert brought == {
        f"tidemill_{name}" for name in ("horovod", "pipemode", "runtime", "serving", "smp", "tensorflow")
    }
    assert "-py3-none-manylinux_2_17_" in wheel.name, "native libraries may tie it to an old C library only"


def test_the_wheel_brings_the_page(bare: Path, root: Path, variables: dict[str, str]) -> None:
    if not (root / "packages/tidemill/src/tidemill/page/index.html").exists():
        pytest.skip("the page is not built: make page (needs Node.js 20.19 or later)")
    tidemill = bare / "env/bin/tidemill"
    subprocess.run([tidemill, "up"], cwd=bare, env=variables, check=True, capture_output=True)
    try:
        show = [tidemill, "open", "--no-browser"]
        address = subprocess.run(show, cwd=bare, env=variables, check=True, capture_output=True, text=True).stdout
        page = address.partition("#")[0]
        with urllib.request.urlopen(page, timeout=60) as answer:
            index = answer.read().decode()
        (script,) = re.findall(r'<script type="module" crossorigin src="([^"]+)"', index)
        with urllib.request.urlopen(urllib.parse.urljoin(page, script), timeout=60) as answer:
            assert answer.headers["content-type"].startswith("text/javascript")
    finally:
        subprocess.run([tidemill, "down"], cwd=bare, env=variables, check=True, capture_output=True)


def test_the_page_on_images_runs_with_the_command_of_the_wheel(
    bare: Path, root: Path, variables: dict[str, str]
) -> None:
    """Its commands run as they are printed, but for the ports, where the wheel's model server and TensorFlow are."""
    build = [bare / "env/bin/tidemill", "environments", "build", "tf-2.21", "--json"]
    built = subprocess.run(build, cwd=bare, env=variables, capture_output=True, text=True, check=True)
    programs = Path(json.loads(built.stdout)["path"]) / "bin"
    (script,) = re.findall(r"```sh\n(.*?)```", (root / PAGE).read_text(), re.DOTALL)
    with contextlib.ExitStack() as cleanup:
        for port in ("8500", "8501"):
            holder = cleanup.enter_context(socket.socket())  # never listens: the server, which sets the option, can
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", 0))
            script = script.replace(port, str(holder.getsockname()[1]))
        done = subprocess.run(
            ["bash", "-e", "-c", f"{script}\nwait $! && tensorflow_model_server --version"],
            cwd=bare,
            env={**variables, "PATH": f"{programs}:{variables['PATH']}", "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"predictions": [2.5, 3.0, 4.5\n    ]' in done.stdout
    assert '"state": "AVAILABLE"' in done.stdout
    assert "TensorFlow ModelServer: " in done.stdout
    assert "TensorFlow Library: 2.21." in done.stdout


def test_the_snippet_of_the_readme_runs_from_the_wheel_alone(bare: Path, root: Path, variables: dict[str, str]) -> None:
    snippets = re.findall(r"```python\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    (snippet,) = [text for text in snippets if "estimator.fit" in text]
    tidemill = bare / "env/bin/tidemill"
    get = [tidemill, "examples", "get", "digits"]
    got = subprocess.run(get, cwd=bare, env=variables, capture_output=True, text=True, check=False)
    assert got.returncode == 0, got.stderr
    files = {file.name: file.read_text() for file in (root / "examples/01_digits").glob("*.py")}
    assert {file.name: file.read_text() for file in (bare / "digits").iterdir()} == files
    for channel in ("train", "test"):
        data = bare / "digits/data" / channel
        data.mkdir(parents=True)
        (data / "digits.csv").write_text("1,2\n")
    (bare / "client.py").write_text(snippet)
    (bare / "digits/train.py").write_text(TRAIN)
    try:
        up = subprocess.run([tidemill, "up"], cwd=bare, env=variables, capture_output=True, text=True, timeout=120)
        assert up.returncode == 0, up.stdout + up.stderr
        command = [bare / "env/bin/python", "client.py"]
        done = subprocess.run(command, cwd=bare, env=variables, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        subprocess.run([tidemill, "down"], env=variables, cwd=bare, check=False, capture_output=True, timeout=60)
    assert "epochs 3 ranks 1 1 PipeModeDataset" in done.stdout
    assert "data ['digits.csv']" in done.stdout
    runs = re.findall(r"runs (.*)", done.stdout)
    assert len(runs) == 5
    for path in runs:
        assert not Path(path).is_relative_to(root), "the job saw the checkout"
        assert "/environments/tf-2.21-" in path
    assert "{'predictions': [[1.0]]}" in done.stdout
