"""What the keys of a job may do: a real job with boto3 in its script, and every refusal as boto3 shows it."""

import json
import uuid
from collections.abc import Mapping
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
GROUP = "/aws/sagemaker/TrainingJobs"
ACCOUNT = "000000000000"

# Evaluates expressions, and prints of each its value, or the code, the status and the message of its error.
SCRIPT = """
    import io, json, os, urllib.error, urllib.request
    from pathlib import Path
    import boto3
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config
    from botocore.exceptions import ClientError

    name, arn = os.environ["TRAINING_JOB_NAME"], os.environ["TRAINING_JOB_ARN"]
    bucket = "sagemaker-us-west-2-000000000000"
    own, group = f"out/{name}", "/aws/sagemaker/TrainingJobs"
    s3, sagemaker, logs = boto3.client("s3"), boto3.client("sagemaker"), boto3.client("logs")
    runtime, sts, iam = boto3.client("sagemaker-runtime"), boto3.client("sts"), boto3.client("iam")
    presign = s3.generate_presigned_url
    presign_4 = boto3.client("s3", config=Config(signature_version="s3v4")).generate_presigned_url
    parts = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20)

    def put(bucket, key, **more):
        return s3.put_object(Bucket=bucket, Key=key, Body=b"of a job", **more)["ETag"]

    def status(reply):
        return reply["ResponseMetadata"]["HTTPStatusCode"]

    def fetch(url, data=None):
        # urllib adds a content type of its own where none is given, and the old form of URL signs it.
        method, headers = ("PUT", {"Content-Type": ""}) if data else ("GET", {})
        request = urllib.request.Request(url, data=data, method=method, headers=headers)
        try:
            return urllib.request.urlopen(request).status
        except urllib.error.HTTPError as error:
            return [error.code, error.read().decode().partition("<Code>")[2].partition("<")[0]]

    given = json.loads((Path(__file__).parent / "given.json").read_text())
    globals().update(given["names"])
    found = {}
    for key, text in given["attempts"].items():
        try:
            found[key] = ["ok", eval(text)]
        except ClientError as error:
            found[key] = [error.response["Error"]["Code"], status(error.response), error.response["Error"]["Message"]]
    print("FOUND", json.dumps(found, default=str))
"""

ALLOWED = {
    "read another bucket": "s3.get_object(Bucket=data, Key='train/a.csv')['Body'].read().decode()",
    "read metadata": "s3.head_object(Bucket=data, Key='train/a.csv')['ContentLength']",
    "read tags": "s3.get_object_tagging(Bucket=data, Key='train/a.csv')['TagSet']",
    "list a folder": "s3.list_objects_v2(Bucket=data, Delimiter='/', Prefix='train/')['Contents'][0]['Key']",
    "list in the old way": "s3.list_objects(Bucket=data)['Contents'][0]['Key']",
    "head a bucket": "status(s3.head_bucket(Bucket=data))",
    "locate a bucket": "s3.get_bucket_location(Bucket=data)['LocationConstraint']",
    "read another job's model": "s3.head_object(Bucket=bucket, Key=model)['ContentLength']",
    "write": "put(bucket, f'{own}/a', Tagging='k=v')",
    "write what is conditional": "put(bucket, f'{own}/a', IfMatch=put(bucket, f'{own}/a'))",
    "upload in parts": "s3.upload_fileobj(io.BytesIO(bytes(11 << 20)), bucket, f'{own}/big', Config=parts)",
    "copy": "status(s3.copy_object(Bucket=bucket, Key=f'{own}/copy', CopySource=f'{data}/train/a.csv'))",
    "copy in parts": "s3.copy({'Bucket': bucket, 'Key': f'{own}/big'}, bucket, f'{own}/big2', Config=parts)",
    "delete": "status(s3.delete_object(Bucket=bucket, Key=f'{own}/copy'))",
    "write below model_dir": "put(bucket, 'models/mine/events')",
    "abort an upload": "status(s3.abort_multipart_upload(Bucket=bucket, Key=f'{own}/u', "
    "UploadId=s3.create_multipart_upload(Bucket=bucket, Key=f'{own}/u')['UploadId']))",
    "describe itself": "sagemaker.describe_training_job(TrainingJobName=name)['TrainingJobStatus']",
    "read its tags": "sagemaker.list_tags(ResourceArn=arn)['Tags']",
    "read its log": "logs.get_log_events(logGroupName=group, logStreamName=logs.describe_log_streams("
    "logGroupName=group, logStreamNamePrefix=f'{name}/')['logStreams'][0]['logStreamName'])['nextForwardToken']",
    "ask who it is": "sts.get_caller_identity()['Arn']",
    "presign a read": "fetch(presign('get_object', {'Bucket': data, 'Key': 'train/a.csv'}))",
}
DENIED_BY_S3 = {
    "list all buckets": "s3.list_buckets()",
    "delete another model": "s3.delete_object(Bucket=bucket, Key=model)",
    "overwrite another model": "put(bucket, model)",
    "overwrite it in parts": "s3.create_multipart_upload(Bucket=bucket, Key=model)",
    "overwrite it by a copy": "s3.copy_object(Bucket=bucket, Key=model, CopySource=f'{data}/train/a.csv')",
    "tag another model": "s3.put_object_tagging(Bucket=bucket, Key=model, Tagging={'TagSet': []})",
    "write into another bucket": "put(data, 'train/b.csv')",
    "write beside its output": "put(bucket, own)",
    "write beside model_dir": "put(bucket, 'models/mine2/events')",
    "write with two slashes": "put(bucket, f'out//{name}/a')",
    "create a bucket": "s3.create_bucket(Bucket='x-1', CreateBucketConfiguration={'LocationConstraint': 'us-west-2'})",
    "delete a bucket": "s3.delete_bucket(Bucket=data)",
    "list uploads": "s3.list_multipart_uploads(Bucket=bucket)",
}
DENIED_BY_JSON = {
    "describe another job": "sagemaker.describe_training_job(TrainingJobName=victim)",
    "read another job's tags": "sagemaker.list_tags(ResourceArn=arn[:-1])",
    "tag itself": "sagemaker.add_tags(ResourceArn=arn, Tags=[{'Key': 'k', 'Value': 'v'}])",
    "create a job": "sagemaker.create_training_job(**{**request, 'TrainingJobName': 'of-a-job'})",
    "stop itself": "sagemaker.stop_training_job(TrainingJobName=name)",
    "list jobs": "sagemaker.list_training_jobs()",
    "create a model": "sagemaker.create_model(ModelName='of-a-job', ExecutionRoleArn=request['RoleArn'])",
    "list endpoints": "sagemaker.list_endpoints()",
    "delete an endpoint": "sagemaker.delete_endpoint(EndpointName='of-another')",
    "read another job's log": "logs.get_log_events(logGroupName=group, logStreamName=stream)",
    "find another job's streams": "logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=f'{victim}/')",
    "find all streams": "logs.describe_log_streams(logGroupName=group)",
    "find streams by a part of its name": "logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=name)",
}
OTHERS = {
    "invoke an endpoint": "runtime.invoke_endpoint(EndpointName='of-another', Body=b'')",
    "ask for a role": "iam.get_role(RoleName='SageMakerRole')",
    "presign a forgery": "fetch(presign('put_object', {'Bucket': bucket, 'Key': model}), b'x')",
    "presign it in the new way": "fetch(presign_4('put_object', {'Bucket': bucket, 'Key': model}), b'x')",
    "delete its own and another's": "s3.delete_objects(Bucket=bucket, Delete={'Objects': "
    "[{'Key': f'{own}/a'}, {'Key': model}]})['Errors']",
}


def attempt(jobs: Any, attempts: Mapping[str, str], *, names: Mapping[str, Any] | None = None, **options: Any) -> Any:
    """Run a job that makes the attempts; returns what became of each."""
    given = json.dumps({"names": names or {}, "attempts": attempts})
    job = jobs.run(SCRIPT, files={"given.json": given}, **options)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    line = next(line for line in jobs.log(job["TrainingJobName"]) if line.startswith("FOUND "))
    return json.loads(line.removeprefix("FOUND "))


@pytest.fixture(scope="module")
def victim(jobs: Any) -> str:
    """Another job that has ended, with a model; its name is the beginning of that of the next job."""
    script = "import os; open(os.environ['SM_MODEL_DIR'] + '/weights', 'w').write('w'); print('the log of another')"
    job = jobs.run(script, name=f"roles-{uuid.uuid4().hex[:8]}-1")
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    return str(job["TrainingJobName"])


@pytest.fixture(scope="module")
def data(jobs: Any) -> str:
    """A bucket that belongs to no job, with one object."""
    bucket = f"data-{uuid.uuid4().hex[:8]}"
    jobs.s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    jobs.s3.put_object(Bucket=bucket, Key="train/a.csv", Body=b"1,2")
    return bucket


def test_a_job_does_its_own_work_and_nothing_to_others(jobs: Any, victim: str, data: str) -> None:
    name, model = f"{victim}0", f"out/{victim}/output/model.tar.gz"  # job-1 and job-10
    before = jobs.object(f"s3://{BUCKET}/{model}")
    streams = jobs.logs_client.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{victim}/")
    names = {
        "victim": victim,
        "data": data,
        "model": model,
        "stream": streams["logStreams"][0]["logStreamName"],
        "request": jobs.request("print()"),
    }
    model_dir = json.dumps(f"s3://{BUCKET}/models/mine")
    attempts = {**ALLOWED, **DENIED_BY_S3, **DENIED_BY_JSON, **OTHERS}
    found = attempt(jobs, attempts, names=names, name=name, HyperParameters={"model_dir": model_dir})

    assert {key: found[key] for key in ALLOWED if found[key][0] != "ok"} == {}
    assert found["read another bucket"] == ["ok", "1,2"]
    assert found["presign a read"] == ["ok", 200]
    assert {key: found[key] for key in DENIED_BY_S3 if found[key][:2] != ["AccessDenied", 403]} == {}
    assert {key: found[key] for key in DENIED_BY_JSON if found[key][:2] != ["AccessDeniedException", 400]} == {}
    assert found["invoke an endpoint"][:2] == ["AccessDeniedException", 403]
    assert found["ask for a role"][:2] == ["AccessDenied", 403]
    assert found["presign a forgery"] == found["presign it in the new way"] == ["ok", [403, "AccessDenied"]]
    [error] = found["delete its own and another's"][1]
    assert (error["Key"], error["Code"]) == (model, "AccessDenied")
    assert found["delete another model"][2].startswith(
        f"User: arn:aws:sts::{ACCOUNT}:assumed-role/SageMakerRole/{name} is not authorized to perform: s3:DeleteObject"
        f" on resource: arn:aws:s3:::{BUCKET}/{model}: "
    )
    # And it is so in the store.
    assert jobs.object(f"s3://{BUCKET}/{model}") == before
    stored = jobs.s3.list_objects_v2(Bucket=BUCKET, Prefix=f"out/{name}/")["Contents"]
    assert [each["Key"] for each in stored] == [f"out/{name}/big", f"out/{name}/big2"]
    assert jobs.describe(name)["TrainingJobStatus"] == "Completed"


def test_a_role_of_the_settings_replaces_the_built_in_policy(jobs_of: Any) -> None:
    policy = {
        "Statement": [
            {"Effect": "Allow", "Action": "s3:*", "Resource": "*"},
            {"Effect": "Deny", "Action": "s3:Delete*", "Resource": "arn:aws:s3:::${job.output}/keep/*"},
            {"Effect": "Allow", "Action": "sagemaker:List*", "Resource": "*"},
        ]
    }
    attempts = {
        "list all buckets": "[each['Name'] for each in s3.list_buckets()['Buckets']]",
        "write": "[put(bucket, f'{own}/{key}') for key in ('keep/a', 'b')]",
        "delete": "status(s3.delete_object(Bucket=bucket, Key=f'{own}/b'))",
        "delete what is kept": "s3.delete_object(Bucket=bucket, Key=f'{own}/keep/a')",
        "list jobs": "len(sagemaker.list_training_jobs()['TrainingJobSummaries'])",
        "describe itself": "sagemaker.describe_training_job(TrainingJobName=name)",
    }
    with Service(settings={"roles": {"Archivist": policy}}) as service:
        jobs = jobs_of(service)
        found = attempt(jobs, attempts, RoleArn=f"arn:aws:iam::{ACCOUNT}:role/service-role/archivist")
        other = attempt(jobs, {"list all buckets": attempts["list all buckets"]})
    assert found["list all buckets"] == ["ok", [BUCKET]]
    assert [found[key][0] for key in ("write", "delete", "list jobs")] == ["ok"] * 3
    assert found["delete what is kept"][0] == "AccessDenied"
    assert "the role 'archivist', and a statement of its policy denies it" in found["delete what is kept"][2]
    assert found["describe itself"][0] == "AccessDeniedException"
    assert other["list all buckets"][0] == "AccessDenied"


def test_keys_of_a_job_end_with_it(jobs: Any, tidemill_service: Service) -> None:
    script = """
        import os
        print("KEYS", *(os.environ[f"AWS_{name}"] for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")))
    """
    job = jobs.run(script)
    line = next(line for line in jobs.log(job["TrainingJobName"]) if line.startswith("KEYS "))
    client = boto3.Session(*line.split()[1:], region_name="us-west-2").client(
        "sts", endpoint_url=tidemill_service.url, config=Config(retries={"total_max_attempts": 1})
    )
    with pytest.raises(ClientError) as caught:
        client.get_caller_identity()
    assert caught.value.response["Error"]["Code"] == "UnrecognizedClientException"
