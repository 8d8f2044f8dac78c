"""One client that updates an endpoint and captures its data, under AWS's own SDK and under tidemill's."""

import json
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest

from forked_sdk import ForkedSdk
from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"

CLIENT = """
    import sys
    from sagemaker.model_monitor import DataCaptureConfig
    from sagemaker.tensorflow import TensorFlowModel

    model_data, name = sys.argv[1:]
    capture = DataCaptureConfig(
        enable_capture=True, sampling_percentage=100, destination_s3_uri="s3://sagemaker-us-west-2-000000000000/" + name
    )
    model = TensorFlowModel(model_data=model_data, role="SageMakerRole", framework_version="2.19", name=name)
    predictor = model.deploy(
        initial_instance_count=2, instance_type="ml.m5.large", endpoint_name=name, data_capture_config=capture
    )

    def instances():
        described = predictor.sagemaker_session.sagemaker_client.describe_endpoint(EndpointName=name)
        return [each["CurrentInstanceCount"] for each in described["ProductionVariants"]]

    print("DEPLOYED", predictor.predict({"instances": [2.0, 4.0]}), instances())
    predictor.update_endpoint(initial_instance_count=1, instance_type="ml.m5.large")
    print("UPDATED", predictor.predict({"instances": [6.0]}), instances())
    predictor.delete_endpoint()
"""


@pytest.mark.parametrize("sdk", ["aws", "tidemill"])
def test_an_endpoint_of_two_instances_is_captured_and_updated(
    sdk: str,
    jobs: Any,
    tidemill_service: Service,
    aws_sdk: ForkedSdk,
    saved_model: Path,
    root: Path,
    tmp_path: Path,
) -> None:
    name = f"updated-by-{sdk}"
    jobs.s3.upload_file(str(saved_model), BUCKET, f"{name}/model.tar.gz")
    (tmp_path / "client.py").write_text(textwrap.dedent(CLIENT))
    arguments = [f"s3://{BUCKET}/{name}/model.tar.gz", name]
    variables = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "TIDEMILL_STATE_DIR": str(tidemill_service.state_dir),
        **tidemill_service.environment,
    }
    if sdk == "aws":
        done = aws_sdk.run(Path("client.py"), *arguments, directory=tmp_path, variables=variables)
    else:
        command = [root / ".venv/bin/tidemill", "run", "client.py", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "DEPLOYED {'predictions': [3.0, 4.0]} [2]" in done.stdout
    assert "UPDATED {'predictions': [5.0]} [1]" in done.stdout
    tidemill_service.restart()  # captured data that waits in memory is written when the service ends
    listed = jobs.s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{name}/{name}/AllTraffic/")["Contents"]
    lines = [line for each in listed for line in jobs.object(f"s3://{BUCKET}/{each['Key']}").splitlines()]
    captured = [json.loads(line)["captureData"] for line in lines]
    assert [json.loads(each["endpointInput"]["data"]) for each in captured] == [
        {"instances": [2.0, 4.0]},
        {"instances": [6.0]},
    ]
    assert [json.loads(each["endpointOutput"]["data"])["predictions"] for each in captured] == [[3.0, 4.0], [5.0]]
