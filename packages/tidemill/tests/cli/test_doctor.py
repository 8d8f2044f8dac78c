"""`tidemill doctor`: its findings, and the remedies that it names."""

import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def findings(ended: "subprocess.CompletedProcess[str]") -> dict[str, dict[str, str]]:
    return {finding["name"]: finding for finding in json.loads(ended.stdout)}


def test_a_fit_machine_passes(tidemill: Run) -> None:
    ended = tidemill("doctor", "--json")
    assert ended.returncode == 0, ended.stdout
    found = findings(ended)
    assert "fail" not in {finding["level"] for finding in found.values()}
    assert found["keys"]["text"] == "made at the first start"
    assert found["isolation"]["text"].startswith(("mount", "plain"))
    # Layout v1 can be used if a group can be created; which groups of layout v2 can be used depends on their processes.
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    group = next((line.split(":")[2] for line in lines if ":memory:" in line), None)
    expected: tuple[str, ...] = ("enforced by the kernel (control group v2)", "measured four times a second: ")
    if group is not None:
        directory = Path("/sys/fs/cgroup/memory") / group.lstrip("/") / f"tidemill-test-of-doctor-{os.getpid()}"
        try:
            directory.mkdir()
            directory.rmdir()
            expected = ("enforced by the kernel (control group v1)",)
        except OSError:
            expected = ("measured four times a second: ",)
    assert found["memory limits"]["text"].startswith(expected)


def test_a_machine_without_mounts_reads_only_the_services_own_s3_on_demand(
    tidemill: Run, variables: dict[str, str], tmp_path: Path
) -> None:
    variables["TIDEMILL_CONFIG"] = str(tmp_path / "config.toml")
    found = findings(tidemill("doctor", "--json", TIDEMILL_ISOLATION="plain"))["fast file mode"]
    text = "for the service's own S3 only: isolation plain has no mounts of its own"
    assert (found["level"], found["text"], found["remedy"]) == ("ok", text, "set isolation to mount")
    (tmp_path / "config.toml").write_text('[remote_s3."far-*"]\nendpoint_url = "http://minio.lan:9000"\n')
    found = findings(tidemill("doctor", "--json", TIDEMILL_ISOLATION="plain"))["fast file mode"]
    assert (found["level"], found["text"]) == ("warn", text)


def test_gpus_are_shown_with_their_driver(tidemill: Run, variables: dict[str, str], tmp_path: Path) -> None:
    found = findings(tidemill("doctor", "--json", TIDEMILL_GPUS="[]"))["gpus"]
    assert found["level"] == "ok"
    assert found["text"].startswith("none (")
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '0, GPU-1a, Tesla T4, 15360 MiB, 550.54.15'\n")
    program.chmod(0o755)
    path = f"{tmp_path}:{variables['PATH']}"
    environments = str(tmp_path / "environments")
    found = findings(tidemill("doctor", "--json", PATH=path, TIDEMILL_ENVIRONMENTS_DIR=environments))["gpus"]
    assert found["level"] == "ok"
    assert found["text"] == (
        "1 for jobs, driver 550.54.15: Tesla T4 with 15360 MiB; the environment tf-2.21-gpu is not built yet"
    )
    unknown = findings(
        tidemill("doctor", "--json", TIDEMILL_GPUS='["0", "1"]', TIDEMILL_ENVIRONMENTS_DIR=environments)
    )["gpus"]
    assert (unknown["level"], unknown["remedy"]) == ("warn", "install NVIDIA's driver, or unset TIDEMILL_GPUS")


def test_doctor_creates_nothing(tidemill: Run, variables: dict[str, str]) -> None:
    tidemill("doctor")
    assert not Path(variables["TIDEMILL_STATE_DIR"]).exists()


def test_a_taken_port_fails_with_its_owner(tidemill: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = tidemill("doctor", "--json", TIDEMILL_PORT=str(taken.getsockname()[1]))
    assert ended.returncode == 1
    assert findings(ended)["service"]["level"] == "fail"
    assert "in use by pid" in findings(ended)["service"]["text"]


def test_a_running_service_is_not_a_taken_port(tidemill: Run) -> None:
    tidemill("up")
    found = findings(tidemill("doctor", "--json"))
    assert found["service"]["level"] == "ok"
    assert "runs at http://127.0.0.1:" in found["service"]["text"]
    assert "`tidemill up --warm`" in found["warm start"]["text"]
    assert found["keys"]["text"].startswith("AKIA")


@pytest.mark.parametrize(
    ("variable", "value"),
    [("AWS_ENDPOINT_URL", "http://elsewhere"), ("AWS_ENDPOINT_URL_S3", "http://minio:9000"), ("AWS_PROFILE", "work")],
)
def test_a_shell_that_points_elsewhere_is_a_warning(tidemill: Run, variable: str, value: str) -> None:
    ended = tidemill("doctor", "--json", **{variable: value})
    assert ended.returncode == 0
    shell = findings(ended)["shell"]
    assert shell["level"] == "warn"
    assert f"unset {variable}" in shell["remedy"]


def test_keys_that_others_may_read_fail(tidemill: Run, variables: dict[str, str]) -> None:
    tidemill("up")
    tidemill("down")
    keys = Path(variables["TIDEMILL_STATE_DIR"]) / "keys.json"
    keys.chmod(0o644)
    ended = tidemill("doctor")
    assert ended.returncode == 1
    assert "chmod 600" in ended.stdout


def test_a_directory_that_others_may_enter_fails(tidemill: Run, variables: dict[str, str]) -> None:
    root = Path(variables["TIDEMILL_STATE_DIR"])
    root.mkdir()
    (root / "something").touch()
    root.chmod(0o755)
    ended = tidemill("doctor", "--json")
    assert ended.returncode == 1
    assert findings(ended)["state directory"]["remedy"] == f"chmod 700 {root}"
