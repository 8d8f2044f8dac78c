"""Packages of a job: what one job brings never reaches another one, in every isolation mode."""

import io
import json
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemill.environments.uv_command import find_uv
from tidemill.sandbox.network import network_failure
from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
_FAILURE = network_failure()
_NEEDS_NETWORKS = pytest.mark.skipif(_FAILURE is not None, reason=f"no network namespaces here: {_FAILURE}")
_PART_OF_FULL = [pytest.mark.matrix] if _FAILURE is None else []


def _wheel(name: str, version: str, text: str) -> bytes:
    """Return a wheel with one module and one command, which both print ``text``: ``NAME-command``, or awscli's."""
    command = "aws" if name == "awscli" else f"{name}-command"
    info, buffer = f"{name}-{version}.dist-info", io.BytesIO()
    files = {
        f"{name}.py": f"TEXT = {text!r}\ndef main(): print('COMMAND', TEXT)\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{command} = {name}:main\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return buffer.getvalue()


def _index(*wheels: tuple[str, str, str]) -> dict[str, bytes]:
    """Return the files of a package index with wheels of these names, versions and texts."""
    files = {}
    for name, version, text in wheels:
        file = f"{name}-{version}-py3-none-any.whl"
        page = f'<!DOCTYPE html><html><body><a href="{file}">{file}</a></body></html>'
        files[f"simple/{name}/index.html"] = page.encode()
        files[f"simple/{name}/{file}"] = _wheel(name, version, text)
    return files


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of the service's package index."""
    directory = tmp_path_factory.mktemp("index")
    for name, content in _index(("tides", "1.0", "of the service"), ("gulls", "1.0", "of the service")).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return f"file://{directory}/simple"


@pytest.fixture(scope="module")
def uv() -> bytes:
    """Return the program uv."""
    return Path(find_uv()).read_bytes()


@pytest.fixture(
    scope="module",
    params=["plain", pytest.param("full", marks=_NEEDS_NETWORKS), pytest.param("mount", marks=_PART_OF_FULL)],
)
def mode(request: pytest.FixtureRequest, jobs_of: Any, index: str) -> Iterator[Any]:
    """Yield jobs of a service in each isolation mode, whose settings name an index."""
    with Service(settings={"isolation": request.param}, variables={"PIP_INDEX_URL": index}) as service:
        yield jobs_of(service)


def _run(jobs: Any, files: dict[str, bytes], **members: Any) -> list[str]:
    """Run a job with the given files as its code; return the lines of its log."""
    request = jobs.request("", **members)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    key = f"{request['TrainingJobName']}/source/sourcedir.tar.gz"
    jobs.s3.put_object(Bucket=BUCKET, Key=key, Body=buffer.getvalue())
    jobs.sagemaker.create_training_job(**request)
    ended = jobs.wait(request["TrainingJobName"])
    lines = jobs.log(request["TrainingJobName"])
    assert ended["TrainingJobStatus"] == "Completed", (ended.get("FailureReason"), lines)
    return lines


INSTALLS = """
import importlib.metadata, os, subprocess, sys

names = ["one", "two", "three", "four"]
assert not {*names, "five"} & {each.name for each in importlib.metadata.distributions()}, "another job installed them"
os.environ["PIP_INDEX_URL"] = "file://" + os.path.abspath("simple")
uv = os.path.join(os.environ["TMPDIR"], "uv")
with open(os.path.join(os.environ["SM_CHANNEL_TOOLS"], "uv"), "rb") as source, open(uv, "wb") as target:
    target.write(source.read())
os.chmod(uv, 0o755)
subprocess.run(["pip", "install", "one"], check=True)
subprocess.run([sys.executable, "-m", "pip", "install", "two"], check=True)
assert os.system("pip3 install three") == 0
subprocess.run([uv, "pip", "install", "--no-cache", "--index-url", os.environ["PIP_INDEX_URL"], "four"], check=True)
import one, two, three, four, numpy, pip, tides
for module in (one, two, three, four):
    assert module.__file__.startswith(sys.prefix + os.sep), (module.__file__, sys.prefix)
    subprocess.run([module.__name__ + "-command"], check=True)
subprocess.run([sys.executable, "-c", "import one, numpy; print('CHILD', one.TEXT)"], check=True)
assert not pip.__file__.startswith(sys.prefix + os.sep)
print("SEEN", tides.TEXT, numpy.__name__)
try:
    with open(tides.__file__, "a") as file:
        file.write("TEXT = 'of another job'")
    print("WRITTEN")
except OSError as error:
    print("KEPT", error.strerror)
"""
ENTRY = """#!/bin/sh
set -e
echo "raise SystemExit('a module of the job')" > yaml.py
mkdir tide && echo high > tide/water
aws s3 cp tide/water "s3://BUCKET/$SAGEMAKER_JOB_NAME/water"
aws s3 sync "s3://BUCKET/$SAGEMAKER_JOB_NAME" ebb
cmp tide/water ebb/water
if python -c "import awscli" 2>/dev/null; then echo "awscli is among the job's packages"; exit 1; fi
pip install --index-url "file://$PWD/simple" awscli
hash -r
echo "AWS: $(aws)"
pip install --index-url "file://$PWD/simple" five
python -c "import five; print('SHELL', five.TEXT)"
five-command
if python -c "import one" 2>/dev/null; then echo "a job's package is here"; exit 1; fi
""".replace("BUCKET", BUCKET)


def test_scripts_install_packages_for_themselves_and_no_other_job_sees_them(mode: Any, uv: bytes) -> None:
    mode.s3.put_object(Bucket=BUCKET, Key="tools/uv", Body=uv)
    channel = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/tools/", "S3DataDistributionType": "FullyReplicated"}
    own = _index(*((name, "1.0", "of the job") for name in ("one", "two", "three", "four", "five", "awscli")))
    code = {"train.py": INSTALLS.encode(), "requirements.txt": b"tides\n", **own}
    lines = _run(mode, code, InputDataConfig=[{"ChannelName": "tools", "DataSource": {"S3DataSource": channel}}])
    assert "SEEN of the service numpy" in lines
    assert lines.count("COMMAND of the job") == 4
    assert "CHILD of the job" in lines
    is_plain = "WRITTEN" in lines
    assert is_plain == any("isolation=plain" in line for line in lines)

    code = {"train.py": b"import tides; print('HAS', tides.TEXT)", "requirements.txt": b"tides\n"}
    lines = _run(mode, code)
    assert "HAS of the service" in lines
    assert is_plain == any("a job has changed the shared packages" in line for line in lines)

    parameters = {"sagemaker_program": json.dumps("entry.sh")}
    lines = _run(mode, {"entry.sh": ENTRY.encode(), **own}, HyperParameters=parameters)
    assert "SHELL of the job" in lines
    assert "COMMAND of the job" in lines
    assert "AWS: COMMAND of the job" in lines, "the job's own AWS CLI takes the place of the one that is always there"


def test_a_job_with_an_index_of_its_own_puts_no_package_into_other_jobs(mode: Any) -> None:
    code = {"train.py": b"import tides; print('HAS', tides.TEXT)", "requirements.txt": b"tides\n"}
    attack = {"PIP_EXTRA_INDEX_URL": "file:///opt/ml/code/simple"}
    lines = _run(mode, {**code, **_index(("tides", "9.9", "of the attacker"))}, Environment=attack)
    assert any("for this job only: the job sets PIP_EXTRA_INDEX_URL" in line for line in lines), lines
    lines = _run(mode, code)
    assert "HAS of the service" in lines
