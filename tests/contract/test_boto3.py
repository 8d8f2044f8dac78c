"""boto3, unmodified: a whole training job and a whole endpoint; every reply is validated by botocore's model."""

import json
import uuid
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tidemill.testing import Service

SCRIPT = """
    import json, os, sys
    print("hello from", os.environ["SM_CURRENT_HOST"], flush=True)
    print("arguments", sys.argv[1:])
    print("train", sorted(os.listdir(os.environ["SM_CHANNEL_TRAIN"])))
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "weights.json"), "w") as file:
        json.dump({"w": 1}, file)
    with open(os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], "metrics.txt"), "w") as file:
        file.write("loss 0.1")
"""


def test_a_training_job_from_upload_to_model(jobs: Any, replies: tuple[boto3.Session, list[str]]) -> None:
    session, _ = replies
    sagemaker, s3 = session.client("sagemaker"), session.client("s3")
    name = f"boto3-{uuid.uuid4().hex[:8]}"
    bucket = "sagemaker-us-west-2-000000000000"
    s3.put_object(Bucket=bucket, Key=f"{name}/data/a.csv", Body=b"1,2")
    s3.put_object(Bucket=bucket, Key=f"{name}/data/sub/b.csv", Body=b"3,4")
    request = jobs.request(
        SCRIPT,
        name=name,
        HyperParameters={"epochs": "3", "note": json.dumps('it\'s "q" $HOME; x')},
        InputDataConfig=[
            {
                "ChannelName": "train",
                "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/{name}/data"}},
            }
        ],
        Tags=[{"Key": "team", "Value": "tides"}],
    )
    arn = sagemaker.create_training_job(**request)["TrainingJobArn"]
    waiter = sagemaker.get_waiter("training_job_completed_or_stopped")
    waiter.wait(TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    job = sagemaker.describe_training_job(TrainingJobName=name)
    assert job["TrainingJobStatus"] == "Completed"
    assert [t["Status"] for t in job["SecondaryStatusTransitions"]][-3:] == ["Training", "Uploading", "Completed"]
    assert job["OutputDataConfig"]["KmsKeyId"] == ""
    assert job["HyperParameters"] == request["HyperParameters"]
    assert job["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://{bucket}/out/{name}/output/model.tar.gz"
    assert json.loads(jobs.model_files(job)["weights.json"]) == {"w": 1}
    assert b"metrics.txt" not in jobs.object(job["ModelArtifacts"]["S3ModelArtifacts"])
    assert jobs.object(f"s3://{bucket}/out/{name}/output/output.tar.gz")
    log = jobs.log(name)
    assert "hello from algo-1" in log
    assert "train ['a.csv', 'sub']" in log
    assert """arguments ['--epochs', '3', '--note', 'it\\'s "q" $HOME; x']""" in log
    assert sagemaker.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "team", "Value": "tides"}]
    summaries = sagemaker.list_training_jobs(NameContains=name)["TrainingJobSummaries"]
    assert [s["TrainingJobName"] for s in summaries] == [name]


MODEL_ERRORS: list[tuple[int, str, dict[str, Any]]] = [
    (
        400,
        "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: JSON Value: \"é\\n\" Type: String"
        " is not of expected type: float",
        {"Body": '{"instances": [1, "é\\n"]}'.encode()},
    ),
    (400, "JSON Parse error: The document is empty", {"Body": b""}),
    (
        400,
        "Expected the input Tensor x of the signature serving_default to be a string of serialized examples, but it is"
        " float. Use the predict method",
        {"CustomAttributes": "tfs-method=regress", "Body": b'{"examples": [{"x": 1.0}]}'},
    ),
    (
        404,
        "Servable not found for request: Latest(absent)",
        {"CustomAttributes": "tfs-model-name=absent", "Body": b"[1]"},
    ),
    (415, "Unsupported Media Type: image/png", {"ContentType": "image/png", "Body": b"x"}),
]
"""Status and text of a model server's errors, and requests that cause them."""


def test_an_endpoint_from_model_to_prediction_to_nothing(
    jobs: Any, replies: tuple[boto3.Session, list[str]], saved_model: Path
) -> None:
    session, _ = replies
    sagemaker, runtime = session.client("sagemaker"), session.client("sagemaker-runtime")
    name = f"half-{uuid.uuid4().hex[:8]}"
    bucket = "sagemaker-us-west-2-000000000000"
    session.client("s3").upload_file(str(saved_model), bucket, f"{name}/model.tar.gz")
    with pytest.raises(ClientError, match="Could not find"):
        sagemaker.describe_endpoint_config(EndpointConfigName=name)
    sagemaker.create_model(
        ModelName=name,
        ExecutionRoleArn="arn:aws:iam::000000000000:role/SageMakerRole",
        PrimaryContainer={
            "Image": "000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-inference:2.21.0-cpu",
            "ModelDataUrl": f"s3://{bucket}/{name}/model.tar.gz",
        },
    )
    sagemaker.create_endpoint_config(
        EndpointConfigName=name,
        ProductionVariants=[
            {"VariantName": "AllTraffic", "ModelName": name, "InstanceType": "ml.m5.large", "InitialInstanceCount": 1}
        ],
    )
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    waiter = sagemaker.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    reply = runtime.invoke_endpoint(
        EndpointName=name, ContentType="application/json", Body=json.dumps({"instances": [3.0, 4.0, 6.0]})
    )
    assert json.loads(reply["Body"].read()) == {"predictions": [3.5, 4.0, 5.0]}
    assert reply["InvokedProductionVariant"] == "AllTraffic"
    with pytest.raises(ClientError) as refused:
        runtime.invoke_endpoint(EndpointName=name, ContentType="application/json", Body=b'{"instances": ["x"]}')
    assert refused.value.response["Error"]["Code"] == "ModelError"
    assert refused.value.response["OriginalStatusCode"] == 400
    with pytest.raises(ClientError) as unsupported:
        runtime.invoke_endpoint(EndpointName=name, ContentType="image/png", Body=b"x")
    assert unsupported.value.response["OriginalStatusCode"] == 415
    for status, text, request in MODEL_ERRORS:
        with pytest.raises(ClientError) as passed_on:
            runtime.invoke_endpoint(EndpointName=name, **{"ContentType": "application/json", **request})
        response = passed_on.value.response
        assert (response["Error"]["Code"], response["OriginalStatusCode"]) == ("ModelError", status)
        assert response["OriginalMessage"] == '{ "error": ' + json.dumps(text, ensure_ascii=False) + " }"
        assert response["Error"]["Message"].startswith(f"Received client error ({status}) from primary with message ")
    assert sagemaker.describe_endpoint(EndpointName=name)["ProductionVariants"][0]["CurrentInstanceCount"] == 1
    sagemaker.delete_endpoint(EndpointName=name)
    waiter = sagemaker.get_waiter("endpoint_deleted")
    waiter.wait(EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    sagemaker.delete_endpoint_config(EndpointConfigName=name)
    sagemaker.delete_model(ModelName=name)
    with pytest.raises(ClientError, match="not found"):
        runtime.invoke_endpoint(EndpointName=name, Body=b"{}")


def test_a_role_and_an_identity_are_answered(replies: tuple[boto3.Session, list[str]]) -> None:
    session, _ = replies
    assert session.client("iam").get_role(RoleName="Trainer")["Role"]["Arn"] == "arn:aws:iam::000000000000:role/Trainer"
    identity = session.client("sts").get_caller_identity()
    assert identity["Account"] == "000000000000"
    assert identity["Arn"].startswith("arn:aws:sts::000000000000:assumed-role/SageMakerRole/")


def test_a_missing_operation_is_an_error_that_names_it(tidemill_service: Service) -> None:
    with pytest.raises(ClientError) as refused:
        tidemill_service.client("sagemaker").create_hub(HubName="h", HubDescription="d")
    assert refused.value.response["Error"]["Code"] == "UnknownOperationException"
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
