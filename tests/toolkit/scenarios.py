"""Jobs that both tidemill's runtime and SageMaker's training toolkit run: configuration files, variables and code."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["SCENARIOS", "Scenario"]

RECORD = """
import json, os, sys

base = os.environ["SAGEMAKER_BASE_DIR"]
tree = [os.path.join(root, name) for root, names, files in os.walk(base) for name in names + files]
seen = {"argv": sys.argv[1:], "variables": dict(os.environ), "directory": os.getcwd(), "path": sys.path[0]}
with open(os.path.join(os.path.dirname(base), "seen.json"), "w", errors="surrogateescape") as file:
    json.dump({**seen, "tree": sorted(tree)}, file)
"""
"""A script that writes its findings next to the directory that replaces /opt/ml."""

SHELL = '#!/bin/sh\nPYTHONSAFEPATH= exec "$RECORD_PYTHON" "$SAGEMAKER_BASE_DIR/code/record.py" "$@"\n'


@dataclass(frozen=True)
class Scenario:
    """One job.

    Attributes:
        raw: Content of hyperparameters.json, without the entry point.
        channels: Content of inputdataconfig.json.
        resources: Content of resourceconfig.json; None writes no such file.
        variables: Container variables.
        code: Files of /opt/ml/code.
        program: Entry point.
    """

    raw: Mapping[str, Any] = field(default_factory=dict)
    channels: Mapping[str, Any] = field(default_factory=lambda: {"training": FILE})
    resources: Mapping[str, Any] | None = field(default_factory=lambda: ONE)
    variables: Mapping[str, str] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=lambda: {"train.py": RECORD})
    program: str | None = "train.py"


def _hosts(count: int) -> list[str]:
    return sorted(f"algo-{number}" for number in range(1, count + 1))


def _group(name: str, *hosts: str, instance_type: str = "ml.m5.xlarge") -> dict[str, Any]:
    return {"instance_group_name": name, "instance_type": instance_type, "hosts": list(hosts)}


def _cluster(count: int, *groups: dict[str, Any], current: str = "algo-1", name: str | None = None) -> dict[str, Any]:
    """Return a resourceconfig.json; `name` is the name of the current group."""
    config: dict[str, Any] = {"current_host": current, "hosts": _hosts(count), "network_interface_name": "eth0"}
    if name is not None:
        config.update(current_group_name=name, instance_groups=list(groups), current_instance_type="ml.m5.xlarge")
    return config


FILE = {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
PIPE = {"TrainingInputMode": "Pipe", "S3DistributionType": "ShardedByS3Key", "RecordWrapperType": "RecordIO"}
ONLY = "homogeneousCluster"
ONE = _cluster(1, _group(ONLY, "algo-1"), name=ONLY)
TWO = _cluster(2, _group(ONLY, "algo-1", "algo-2"), name=ONLY)
MIXED = [_group("cpu", "algo-1"), _group("gpu", "algo-2", "algo-3", instance_type="ml.p3.2xlarge")]

# Contents of hyperparameters.json, by the name of their special feature.
VALUES: dict[str, Any] = {
    "integer": "3",
    "float": "0.001",
    "exponent": "1e-5",
    "large integer": "123456789012345678901234567890",
    "many digits": "0.1000000000000000055",
    "minus": "-3",
    "infinity": "Infinity",
    "not a number": "NaN",
    "true": "true",
    "false": "false",
    "null": "null",
    "python's True": "True",
    "JSON string": '"adam"',
    "JSON string of a number": '"3"',
    "bare string": "adam",
    "URI": "s3://bucket/prefix",
    "empty": "",
    "empty JSON string": '""',
    "space": " ",
    "spaces": "hello  world",
    "newline": "a\nb",
    "tab": "a\tb",
    "quotes": '"it\'s \\"q\\" $HOME"',
    "shell": "$(id); `id` | x > y & z",
    "backslash": "a\\b",
    "glob": "*.py",
    "dashes": "--help",
    "unicode": '"größe 猫"',
    "bare unicode": "größe 猫",
    "escaped unicode": '"\\u732b"',
    "list": '[1, 2, "a b"]',
    "empty list": "[]",
    "nested list": "[[1, null], [true, 0.5]]",
    "map": '{"b": 1, "a": "x y"}',
    "empty map": "{}",
    "nested map": '{"b": {"z": [1], "y": null}, "a": true}',
    "map of odd keys": '{"k=v": "a,b", "": 1}',
    "half a map": '{"b": 1',
    "leading zeros": "007",
    "hexadecimal": "0x10",
    "comma": "1,2",
    "number, not text": 3,
    "list, not text": [1, "a"],
    "null, not text": None,
    "boolean, not text": True,
}

NAMES = ["a", "A", "batch-size", "batch_size", "batch.size", "learning rate", "_x", "-x", "größe", "k=v", "1"]

FRAMEWORK: dict[str, dict[str, Any]] = {
    "log level": {"sagemaker_container_log_level": "10"},
    "job name": {"sagemaker_job_name": '"job-1"'},
    "region": {"sagemaker_region": '"us-west-2"'},
    "submit directory": {"sagemaker_submit_directory": '"s3://bucket/job/source/sourcedir.tar.gz"'},
    "metrics": {"sagemaker_enable_cloudwatch_metrics": "true"},
    "tuning": {"_tuning_objective_metric": "loss", "sagemaker_job_name": '"t-1"', "model_dir": '"s3://b/m"'},
    "tuning, no model_dir": {"_tuning_objective_metric": "loss", "sagemaker_job_name": '"t-1"'},
    "tuning, local model_dir": {
        "_tuning_objective_metric": "loss",
        "sagemaker_job_name": '"t-1"',
        "model_dir": "/opt/ml/model",
    },
    "additional": {"sagemaker_own": '{"a": [1]}', "sagemaker_other": "x"},
    "model parallelism": {"mp_parameters": '{"partitions": 2}'},
    "everything": {
        "sagemaker_container_log_level": "30",
        "sagemaker_job_name": '"job-2"',
        "sagemaker_region": '"eu-central-1"',
        "sagemaker_submit_directory": '"s3://bucket/code.tar.gz"',
        "epochs": "3",
        "optimizer": '"adam"',
    },
}

CHANNELS: dict[str, dict[str, Any]] = {
    "none": {},
    "two": {"train": FILE, "Test-Set": FILE},
    "pipe": {"training": PIPE},
    "content type": {"training": {**FILE, "ContentType": "text/csv"}},
    "a dot and a minus": {"a.b-c": FILE},
    "digits": {"1": FILE, "10": FILE, "2": FILE},
    "cases": {"Train": FILE, "val": PIPE},
    "an empty entry": {"training": {}},
}

RESOURCES: dict[str, dict[str, Any] | None] = {
    "one host, no groups": _cluster(1),
    "two hosts, no groups, the first": _cluster(2),
    "two hosts, no groups, the second": _cluster(2, current="algo-2"),
    "one group, the first": TWO,
    "one group, the second": {**TWO, "current_host": "algo-2"},
    "eleven hosts": _cluster(11, _group(ONLY, *_hosts(11)), current="algo-10", name=ONLY),
    "two groups, the first": _cluster(3, *MIXED, name="cpu"),
    "two groups, the second": _cluster(3, *MIXED, current="algo-3", name="gpu"),
    "two groups, no type": {
        name: value for name, value in _cluster(3, *MIXED, name="cpu").items() if name != "current_instance_type"
    },
    "another interface": {**TWO, "network_interface_name": "ens5"},
    "topology": {**TWO, "topology": [{"hostName": "algo-1", "capacityUnitId": "u"}]},
    "unknown members": {**ONE, "something": {"else": [1, None]}},
}

VARIABLES: dict[str, dict[str, str]] = {
    "job name": {"TRAINING_JOB_NAME": "job-3"},
    "region": {"AWS_REGION": "us-east-2"},
    "log level, without effect": {"SAGEMAKER_CONTAINER_LOG_LEVEL": "40"},
    "submit directory, without effect": {"SAGEMAKER_SUBMIT_DIRECTORY": "s3://bucket/other.tar.gz"},
    "the user's own": {"OWN": "a b", "SM_OWN": "kept"},
    "one that is replaced": {"SM_HOSTS": "x", "CURRENT_HOST": "y", "SM_HP_EPOCHS": "z"},
    "loader": {"PYTHONPATH": "/somewhere"},
}

CODE: dict[str, Scenario] = {
    "another name": Scenario(code={"my_train.py": RECORD}, program="my_train.py", raw={"a": "1"}),
    "a directory": Scenario(code={"src/train.py": RECORD}, program="src/train.py", raw={"a": "1"}),
    "further files": Scenario(code={"train.py": RECORD, "lib/own.py": "", "data.txt": "x"}),
    "shell": Scenario(
        code={"run.sh": SHELL, "record.py": RECORD}, program="run.sh", raw={"a": "1", "text": "it's $HOME; x"}
    ),
    "no suffix": Scenario(code={"run": SHELL, "record.py": RECORD}, program="run", raw={"list": "[1, 2]"}),
    "program by variable": Scenario(
        code={"train.py": "raise SystemExit(9)", "other.py": RECORD}, variables={"SAGEMAKER_PROGRAM": "other.py"}
    ),
    "program as JSON": Scenario(program='"train.py"'),
    "status 3": Scenario(code={"train.py": f"{RECORD}\nsys.exit(3)"}),
    "an exception": Scenario(code={"train.py": f"{RECORD}\nraise ValueError('bad')"}),
    "killed": Scenario(code={"train.py": f"{RECORD}\nos.kill(os.getpid(), 9)"}),
    "status 137": Scenario(code={"train.py": f"{RECORD}\nos._exit(137)"}),
    "an own report": Scenario(
        code={
            "train.py": f"{RECORD}\nos.makedirs(base + '/output', exist_ok=True)\n"
            "open(base + '/output/failure', 'w').write('mine')\nsys.exit(4)"
        }
    ),
    "a missing file": Scenario(program="missing.py"),
    "no program": Scenario(program=None),
    "a program outside": Scenario(program="../train.py"),
    "a program with a space": Scenario(code={"my train.py": RECORD}, program="my train.py"),
    "a program like an option": Scenario(code={"-c": RECORD}, program="-c"),
}


def _all() -> dict[str, Scenario]:
    plain = Scenario()
    found = {f"value: {name}": replace(plain, raw={"value": value}) for name, value in VALUES.items()}
    found |= {f"name: {name}": replace(plain, raw={name: "x y"}) for name in NAMES}
    numbered = {name: json.dumps(number) for number, name in enumerate(NAMES) if "=" not in name}
    found["names: all"] = replace(plain, raw=numbered)
    found["names: of two cases"] = replace(plain, raw={"B": "1", "b": "2", "a": "3", "A": "4"})
    found |= {f"framework: {name}": replace(plain, raw=raw) for name, raw in FRAMEWORK.items()}
    found |= {f"channels: {name}": replace(plain, channels=channels) for name, channels in CHANNELS.items()}
    found |= {f"resources: {name}": replace(plain, resources=resources) for name, resources in RESOURCES.items()}
    found |= {
        f"variables: {name}": replace(plain, raw={"epochs": "1"}, variables=variables)
        for name, variables in VARIABLES.items()
    }
    found |= {f"code: {name}": scenario for name, scenario in CODE.items()}
    platform = {"TRAINING_JOB_NAME": "job-4", "AWS_REGION": "us-west-2"}
    client = {"sagemaker_job_name": '"job-4"', "sagemaker_region": '"us-west-2"'}
    found["job name and region, as in jobs"] = replace(plain, raw=client, variables=platform)
    groups = {"sagemaker_distribution_instance_groups": '["gpu"]'}
    in_groups = _cluster(3, *MIXED, current="algo-2", name="gpu")
    found["distribution: named groups"] = replace(plain, raw=groups, resources=in_groups)
    found["distribution: named groups, outside"] = replace(plain, raw=groups, resources=_cluster(3, *MIXED, name="cpu"))
    return found


SCENARIOS = _all()
