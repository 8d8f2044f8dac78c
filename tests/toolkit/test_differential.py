"""The same jobs under tidemill's runtime and under SageMaker's training toolkit 5.1.4: both scripts find the same.

Run by `make matrix-toolkit`. Both are whole processes, each with its own copy of the job; the toolkit runs in a
separate environment. Every difference is listed here with its reason, and a listed difference that no longer exists is
an error, too.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from scenarios import SCENARIOS, Scenario

ROOT = Path(__file__).parents[2]
TOOLKIT = ROOT / ".venvs/toolkit/bin"
OURS = ROOT / ".venvs/tf-2.21/bin"
ABSENT = "(absent)"
PLATFORM = ("input/config", "input/data", "model", "output/data", "checkpoints", "code")
"""Directories that the shim, and SageMaker's platform, create."""

# Differences for every script: the toolkit's value and tidemill's. docs/compatibility.md has the reasons.
IMAGE = "sagemaker_tensorflow_container.training:main"
EVERYWHERE: dict[str, tuple[Any, Any]] = {
    "$PYTHONUNBUFFERED": (ABSENT, "1"),
    "$S3_USE_HTTPS": (ABSENT, "1"),
    "$TF_CPP_MIN_LOG_LEVEL": (ABSENT, "1"),
    "$SM_FRAMEWORK_MODULE": ("", IMAGE),
    "SM_TRAINING_ENV: framework_module": (None, IMAGE),
    "$TIDEMILL_REPORTS": (ABSENT, "DIRECTORY/ml/.tidemill/reports"),
    "$TIDEMILL_TENSORFLOW": (ABSENT, "1"),
}

TRIAL = "s3://b/m/t-1/model"
# Further differences of single jobs.
SOMEWHERE: dict[str, dict[str, tuple[Any, Any]]] = {
    "framework: job name": {"SM_TRAINING_ENV: job_name": (None, "job-1")},
    "framework: region": {"$S3_REGION": (ABSENT, "us-west-2")},
    "framework: everything": {"SM_TRAINING_ENV: job_name": (None, "job-2"), "$S3_REGION": (ABSENT, "eu-central-1")},
    "framework: tuning": {
        "$SM_HPS": ('{"model_dir":"s3://b/m"}', f'{{"model_dir":"{TRIAL}"}}'),
        "$SM_HP_MODEL_DIR": ("s3://b/m", TRIAL),
        "$SM_USER_ARGS": ('["--model_dir","s3://b/m"]', f'["--model_dir","{TRIAL}"]'),
        "SM_TRAINING_ENV: hyperparameters": ({"model_dir": "s3://b/m"}, {"model_dir": TRIAL}),
        "SM_TRAINING_ENV: job_name": (None, "t-1"),
        "argv": (["--model_dir", "s3://b/m"], ["--model_dir", TRIAL]),
    },
    "framework: tuning, no model_dir": {"SM_TRAINING_ENV: job_name": (None, "t-1")},
    "framework: tuning, local model_dir": {"SM_TRAINING_ENV: job_name": (None, "t-1")},
    "framework: model parallelism": {"SM_TRAINING_ENV: is_modelparallel_enabled": (None, True)},
    "variables: job name": {"$SAGEMAKER_JOB_NAME": ("", "job-3")},
    "variables: region": {"$SAGEMAKER_REGION": ("", "us-east-2"), "$S3_REGION": (ABSENT, "us-east-2")},
    "job name and region, as in jobs": {"$S3_REGION": (ABSENT, "us-west-2")},
}
# Jobs that end before the script runs, with a message of tidemill's own.
NO_SCRIPT = (
    "code: a missing file",
    "code: no program",
    "code: a program outside",
    "code: a program with a space",
    "code: a program like an option",
)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_script_finds_what_it_finds_under_the_toolkit(name: str, tmp_path: Path) -> None:
    toolkit, ours = both(SCENARIOS[name], tmp_path)
    if name == "name: k=v":
        # No variable can have such a name. The toolkit fails; tidemill's script finds the value among its arguments.
        assert (toolkit["exit status"], ours["exit status"]) == (1, 0)
        assert "argv" not in toolkit
        assert ours["argv"] == ["--k=v", "x y"]
        return
    if name in NO_SCRIPT:
        assert "argv" not in toolkit
        assert "argv" not in ours
        assert toolkit["exit status"] == ours["exit status"] == 1
        assert toolkit["failure: head"]
        assert ours["failure: head"][0].startswith("EntryPointNotFound: entry point")
        return
    assert "argv" in toolkit
    _check_own_variables(toolkit, ours)
    names = sorted({*toolkit, *ours})
    pairs = {fact: (toolkit.get(fact, ABSENT), ours.get(fact, ABSENT)) for fact in names}
    different = {fact: pair for fact, pair in pairs.items() if pair[0] != pair[1]}
    assert different == {**EVERYWHERE, **SOMEWHERE.get(name, {})}


def _check_own_variables(toolkit: dict[str, Any], ours: dict[str, Any]) -> None:
    """Remove what differs in every job, but not in the same way."""
    assert ours.pop("$PATH") == f"BIN:{toolkit.pop('$PATH')}"
    given = ours.pop("$PYTHONPATH").split(":")
    found = toolkit.pop("$PYTHONPATH").split(":")
    assert given[0] == found[0] == "DIRECTORY/ml/code"
    assert set(given) <= set(found)  # the toolkit adds the path of its own process
    private = [path for path in ours["tree"] if path.startswith("DIRECTORY/ml/.tidemill")]
    assert private
    ours["tree"] = [path for path in ours["tree"] if path not in private]


def run(scenario: Scenario, directory: Path, command: list[str], *, python: Path) -> dict[str, Any]:
    """Run a scenario in `directory`; return what its script found and the files that the job left, by name."""
    base = directory / "ml"
    for name, text in scenario.code.items():
        path = base / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    program = {"sagemaker_program": scenario.program} if scenario.program is not None else {}
    config = {
        "hyperparameters": {**scenario.raw, **program},
        "inputdataconfig": scenario.channels,
        "resourceconfig": scenario.resources,
    }
    for name in PLATFORM:
        (base / name).mkdir(parents=True, exist_ok=True)
    for name, value in config.items():
        (base / f"input/config/{name}.json").write_text(json.dumps(value), encoding="utf-8")
    variables = {
        "PATH": f"{python.parent}:/usr/bin:/bin",
        "HOME": str(directory),
        "LANG": "C.UTF-8",
        "SAGEMAKER_BASE_DIR": str(base),
        "SM_STUDIO_LOCAL_MODE": "true",  # otherwise the toolkit waits for a DNS that knows algo-2
        "RECORD_PYTHON": str(python),
        **scenario.variables,
    }
    process = subprocess.run(command, env=variables, cwd=directory, capture_output=True, timeout=120, check=False)
    return _facts(directory, process.returncode, python=python)


def _facts(directory: Path, status: int, *, python: Path) -> dict[str, Any]:
    failure = directory / "ml/output/failure"
    lines = failure.read_text(encoding="utf-8").splitlines() if failure.exists() else []
    facts: dict[str, Any] = {
        "exit status": status,
        "success": (directory / "ml/output/success").exists(),
        "failure: head": lines[:1],
        "failure: exit code": [line for line in lines if line.startswith("ExitCode")],
        "failure: command": [line for line in lines if line.startswith("Command")],
    }
    seen = directory / "seen.json"
    if seen.exists():
        found = json.loads(seen.read_text(encoding="utf-8", errors="surrogateescape"))
        training = json.loads(found["variables"].pop("SM_TRAINING_ENV"))
        facts |= {f"${name}": value for name, value in found.pop("variables").items()}
        facts |= {f"SM_TRAINING_ENV: {name}": value for name, value in training.items()}
        facts |= found
    text = json.dumps(facts).replace(str(directory), "DIRECTORY").replace(str(python.parent), "BIN")
    return json.loads(text)


def both(scenario: Scenario, directory: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the findings of the toolkit's script, and of tidemill's."""
    for name in ("toolkit", "ours"):
        (directory / name).mkdir()
    toolkit = run(scenario, directory / "toolkit", [str(TOOLKIT / "train")], python=TOOLKIT / "python")
    runtime = [str(OURS / "python"), "-m", "tidemill_runtime", "train"]
    return toolkit, run(scenario, directory / "ours", runtime, python=OURS / "python")
