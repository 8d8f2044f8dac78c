"""User code of endpoints, deployed by AWS's unmodified SDK v2 and by tidemill's own."""

import io
import os
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tidemill.server.client import own_client
from tidemill.testing import Service

INFERENCE = """
import json
import helper
import tides

print("loaded with", helper.__file__, flush=True)

def input_handler(data, context):
    print("handling", context.request_content_type)
    rows = [float(each) * tides.HEIGHT for each in data.read().decode().split(",")]
    return json.dumps({"instances": rows})

def output_handler(response, context):
    return json.dumps({"mine": response.json()["predictions"]}), context.accept_header
"""
DEPLOY = """
model = TensorFlowModel(
    model_data="s3://{bucket}/code/model.tar.gz", role="SageMakerRole", framework_version="2.19",
    entry_point="inference.py", source_dir="source", dependencies=["helper.py"],
)
predictor = model.deploy(1, "ml.m5.large", endpoint_name={name!r})
import boto3
runtime = boto3.client("sagemaker-runtime")
reply = runtime.invoke_endpoint(
    EndpointName={name!r}, Body=b"1,2", ContentType="text/csv", Accept="application/json"
)
print("ANSWER", reply["Body"].read().decode(), reply["ContentType"])
"""


def _wheel(path: Path) -> None:
    """Write a package of one module, small enough to be built here."""
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tides.py", "HEIGHT = 2.0\n")
        wheel.writestr("tides-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: tides\nVersion: 1\n")
        wheel.writestr(
            "tides-1.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("tides-1.dist-info/RECORD", "tides.py,,\n")


@pytest.fixture
def source(tidemill_service: Service, saved_model: Path, tmp_path: Path, jobs: Any) -> Path:
    """Return a client's directory: a script, a package that it needs, a file beside it; the model is uploaded."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source/inference.py").write_text(INFERENCE)
    (tmp_path / "source/requirements.txt").write_text("./tides-1-py3-none-any.whl\n")
    _wheel(tmp_path / "source/tides-1-py3-none-any.whl")
    (tmp_path / "helper.py").write_text("")
    jobs.s3.put_object(Bucket=_BUCKET, Key="code/model.tar.gz", Body=saved_model.read_bytes())
    return tmp_path


_BUCKET = "sagemaker-us-west-2-000000000000"


def _run(python: Path | str, client: str, directory: Path, service: Service) -> str:
    (directory / "client.py").write_text(textwrap.dedent(client))
    done = subprocess.run(
        [python, "client.py"],
        cwd=directory,
        env={"PATH": os.environ["PATH"], "HOME": str(directory), **service.environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _log(service: Service, endpoint: str) -> list[str]:
    logs = service.boto3_session().client("logs")
    events = logs.filter_log_events(logGroupName=f"/aws/sagemaker/Endpoints/{endpoint}")["events"]
    return [event["message"] for event in events]


def test_aws_sdk_v2_deploys_a_script_with_its_packages(tidemill_service: Service, source: Path, root: Path) -> None:
    # Dependencies would become code/lib, beside which requirements.txt is ignored, as in the container.
    script = "from sagemaker.tensorflow import TensorFlowModel" + DEPLOY.format(bucket=_BUCKET, name="by-aws")
    (source / "helper.py").rename(source / "source/helper.py")
    script = script.replace(', dependencies=["helper.py"]', "")
    out = _run(root / ".venvs/peers/bin/python", script, source, tidemill_service)
    assert 'ANSWER {"mine": [3.0, 4.0]} application/json' in out
    log = _log(tidemill_service, "by-aws")
    assert any(line.startswith("loaded with ") and line.endswith("/code/helper.py") for line in log)
    assert any(line.startswith("handler.loaded handlers=input_handler,output_handler file=") for line in log)
    assert "handling text/csv" in log
    assert any("packages are ready" in line for line in log)


def test_the_own_sdk_deploys_a_script_with_what_lies_beside_it(tidemill_service: Service, source: Path) -> None:
    (source / "source/requirements.txt").unlink()
    (source / "tides.py").write_text("HEIGHT = 4.0")
    script = "from tidemill.sdk import TensorFlowModel" + DEPLOY.format(bucket=_BUCKET, name="by-tidemill")
    script = script.replace('["helper.py"]', '["helper.py", "tides.py"]')
    out = _run(sys.executable, script, source, tidemill_service)
    assert 'ANSWER {"mine": [4.0, 6.0]} application/json' in out
    assert any("code/lib/helper.py" in line for line in _log(tidemill_service, "by-tidemill"))


def test_a_script_that_cannot_be_imported_fails_the_endpoint_with_its_own_words(
    tidemill_service: Service, source: Path
) -> None:
    (source / "source/inference.py").write_text("import json\n\ndef load():\n    raise KeyError('weights')\n\nload()\n")
    (source / "source/requirements.txt").unlink()
    script = f"""
        from tidemill.sdk import TensorFlowModel
        model = TensorFlowModel(
            "s3://{_BUCKET}/code/model.tar.gz", entry_point="inference.py", source_dir="source"
        )
        try:
            model.deploy(endpoint_name="broken")
        except Exception as error:
            print("FAILED", error)
    """
    out = _run(sys.executable, script, source, tidemill_service)
    assert "FAILED" in out
    assert "could not be loaded: KeyError: 'weights'" in out
    assert any("in load" in line for line in _log(tidemill_service, "broken"))


MULTI = """
def input_handler(data, context):
    return data.read()

def output_handler(response, context):
    return response.text.replace("predictions", "mine"), "application/json"
"""


def test_models_of_a_prefix_are_served_by_target_model(
    tidemill_service: Service, saved_model: Path, jobs: Any, tmp_path: Path
) -> None:
    def put(key: str, script: str | None) -> None:
        with tarfile.open(saved_model) as source, tarfile.open(tmp_path / "new.tar.gz", "w:gz") as target:
            for member in source:
                target.addfile(member, source.extractfile(member) if member.isreg() else None)
            if script is not None:
                info = tarfile.TarInfo("code/inference.py")
                info.size = len(script)
                target.addfile(info, io.BytesIO(script.encode()))
        jobs.s3.put_object(Bucket=_BUCKET, Key=key, Body=(tmp_path / "new.tar.gz").read_bytes())

    put("many/plain.tar.gz", None)
    put("many/deep/scripted.tar.gz", MULTI)
    session = tidemill_service.boto3_session()
    sagemaker, runtime = session.client("sagemaker"), session.client("sagemaker-runtime")
    image = "000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-inference:2.21.0-cpu"
    container = {"Image": image, "Mode": "MultiModel", "ModelDataUrl": f"s3://{_BUCKET}/many/"}
    role = "arn:aws:iam::000000000000:role/SageMakerRole"
    sagemaker.create_model(ModelName="many", ExecutionRoleArn=role, PrimaryContainer=container)
    variant = {"VariantName": "All", "ModelName": "many", "InstanceType": "local", "InitialInstanceCount": 1}
    sagemaker.create_endpoint_config(EndpointConfigName="many", ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName="many", EndpointConfigName="many")
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="many", WaiterConfig={"Delay": 1})

    def invoke(target: str) -> str:
        reply = runtime.invoke_endpoint(
            EndpointName="many", TargetModel=target, Body=b'{"instances": [2.0]}', ContentType="application/json"
        )
        return " ".join(reply["Body"].read().decode().split())

    tidemill = own_client(session, tidemill_service.url)

    def described(target: str) -> list[Any]:
        return tidemill.describe_served_models(EndpointName="many", TargetModel=target)["Models"]

    assert described("plain.tar.gz") == [], "nothing is loaded to describe it"
    with ThreadPoolExecutor(4) as pool:  # several clients request a model that is not loaded yet
        assert set(pool.map(invoke, ["plain.tar.gz"] * 4)) == {'{ "predictions": [3.0 ] }'}
    assert invoke("deep/scripted.tar.gz") == '{ "mine": [3.0 ] }'
    (plain,) = described("plain.tar.gz")
    inputs = {each["Name"]: each["Inputs"] for each in plain["Signatures"]}
    assert inputs["serving_default"] == [{"Name": "x", "Type": "float", "Shape": [-1]}]
    assert [each["State"] for each in plain["Versions"]] == ["AVAILABLE"]
    with pytest.raises(ClientError, match=r"ModelError.*many/none.tar.gz does not exist"):
        described("none.tar.gz")
    put("many/plain.tar.gz", MULTI)  # other content makes it another model
    assert invoke("plain.tar.gz") == '{ "mine": [3.0 ] }'
    with pytest.raises(ClientError, match=r"ValidationError.*many/none.tar.gz does not exist"):
        invoke("none.tar.gz")
    with pytest.raises(ClientError, match="is a multi-model endpoint: name a model by TargetModel"):
        runtime.invoke_endpoint(EndpointName="many", Body=b"{}")
    jobs.s3.put_object(Bucket=_BUCKET, Key="many/broken.tar.gz", Body=b"no archive")
    with pytest.raises(ClientError, match=r"ModelError.*InvalidArchive"):
        invoke("broken.tar.gz")
    assert invoke("plain.tar.gz") == '{ "mine": [3.0 ] }'
    sagemaker.delete_endpoint(EndpointName="many")


PYTHON_SCRIPT = """
import subprocess
import tides

subprocess.run(["aws", "s3", "ls", "s3://sagemaker-us-west-2-000000000000/code/"], check=True)

def input_fn(serialized_data, content_type):
    print("input_fn", content_type)
    return [float(each) * tides.HEIGHT for each in serialized_data.split(";")]
"""


def test_a_python_endpoint_runs_its_submitted_script(tidemill_service: Service, source: Path) -> None:
    (source / "source/inference.py").write_text(PYTHON_SCRIPT)
    out = _run(
        sys.executable,
        f"""
        from tidemill.sdk import TensorFlowModel
        from tidemill.sdk.serializers import IdentitySerializer
        model = TensorFlowModel(
            "s3://{_BUCKET}/code/model.tar.gz", entry_point="inference.py", source_dir="source", endpoint_type="python"
        )
        predictor = model.deploy(endpoint_name="python-kind")
        predictor.serializer = IdentitySerializer("text/x-mine")
        print("ANSWER", predictor.predict(b"1;2")["outputs"]["y"]["floatVal"])
        predictor.delete_endpoint()
        """,
        source,
        tidemill_service,
    )
    assert "ANSWER [3.0, 4.0]" in out
    log = _log(tidemill_service, "python-kind")
    assert any(line.startswith("handler.loaded handlers=input_fn file=") for line in log)
    assert "input_fn text/x-mine" in log
    assert any(line.endswith(" model.tar.gz") for line in log), "the AWS CLI lists a prefix with the endpoint's keys"
