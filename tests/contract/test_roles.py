"""The rights of a job's keys: a real job with boto3 in its script, and every refusal as boto3 shows it."""

import asyncio
import http.client
import json
import textwrap
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from tidemill.core.clock import SystemClock
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.records.base import Record
from tidemill.store.records.store import SqlRecordStore
from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
GROUP = "/aws/sagemaker/TrainingJobs"
ACCOUNT = "000000000000"

# Evaluates expressions, and prints the value of each, or the code, the status and the message of its error.
SCRIPT = """
    import io, json, os, time, urllib.error, urllib.request
    from pathlib import Path
    import boto3
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config
    from botocore.credentials import ContainerProvider
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

    def container_keys():
        found = ContainerProvider().load().get_frozen_credentials()
        return [found.access_key, found.secret_key, found.token] == [os.environ[name] for name in (
            "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")]

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
    "list all buckets": "len(s3.list_buckets()['Buckets'])",
    "create a bucket": "status(s3.create_bucket(Bucket=f'sagemaker-{name}', "
    "CreateBucketConfiguration={'LocationConstraint': 'us-west-2'}))",
    "write to the default bucket": "put(bucket, 'my/artifact.txt')",
    "replace it": "put(bucket, 'my/artifact.txt')",
    "delete it": "status(s3.delete_object(Bucket=bucket, Key='my/artifact.txt'))",
    "write below S3OutputPath": "put(bucket, 'out/results/payload.pkl')",
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
    "write a log of its own": "logs.create_log_group(logGroupName=f'/team/{name}') and logs.create_log_stream("
    "logGroupName=f'/team/{name}', logStreamName='run') and logs.put_log_events(logGroupName=f'/team/{name}', "
    "logStreamName='run', logEvents=[{'timestamp': int(time.time() * 1000), 'message': 'of a job'}])"
    "['nextSequenceToken']",
    "get its keys as a container": "container_keys()",
    "ask who it is": "sts.get_caller_identity()['Arn']",
    "presign a read": "fetch(presign('get_object', {'Bucket': data, 'Key': 'train/a.csv'}))",
}
DENIED_BY_S3 = {
    "delete another model": "s3.delete_object(Bucket=bucket, Key=model)",
    "overwrite another model": "put(bucket, model)",
    "overwrite it in parts": "s3.create_multipart_upload(Bucket=bucket, Key=model)",
    "overwrite it by a copy": "s3.copy_object(Bucket=bucket, Key=model, CopySource=f'{data}/train/a.csv')",
    "tag another model": "s3.put_object_tagging(Bucket=bucket, Key=model, Tagging={'TagSet': []})",
    "replace an input": "put(bucket, given_input)",
    "write into another bucket": "put(data, 'train/b.csv')",
    "write into a folder named sagemaker": "put(data, 'sagemaker/b.csv')",
    "create another bucket": "s3.create_bucket(Bucket='x-1', "
    "CreateBucketConfiguration={'LocationConstraint': 'us-west-2'})",
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
    "read the log that it wrote": "logs.filter_log_events(logGroupName=f'/team/{name}')",
    "delete another job's log": "logs.delete_log_stream(logGroupName=group, logStreamName=stream)",
    "find another job's streams": "logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=f'{victim}/')",
    "find all streams": "logs.describe_log_streams(logGroupName=group)",
    "find streams by a part of its name": "logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=name)",
}
OTHERS = {
    "forge another job's log": "logs.create_log_stream(logGroupName=group, logStreamName=f'{victim}/algo-2')",
    "write into another job's log": "logs.put_log_events(logGroupName=group, logStreamName=stream, "
    "logEvents=[{'timestamp': int(time.time() * 1000), 'message': 'forged'}])",
    "invoke an endpoint": "runtime.invoke_endpoint(EndpointName='of-another', Body=b'')",
    "ask for a role": "iam.get_role(RoleName='SageMakerRole')",
    "presign a forgery": "fetch(presign('put_object', {'Bucket': bucket, 'Key': model}), b'x')",
    "presign it in the new way": "fetch(presign_4('put_object', {'Bucket': bucket, 'Key': model}), b'x')",
    "delete its own and another's": "s3.delete_objects(Bucket=bucket, Delete={'Objects': "
    "[{'Key': f'{own}/a'}, {'Key': model}]})['Errors']",
}


def attempt(jobs: Any, attempts: Mapping[str, str], *, names: Mapping[str, Any] | None = None, **options: Any) -> Any:
    """Run a job that makes the attempts, and return the result of each."""
    given = json.dumps({"names": names or {}, "attempts": attempts})
    job = jobs.run(SCRIPT, files={"given.json": given}, **options)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    line = next(line for line in jobs.log(job["TrainingJobName"]) if line.startswith("FOUND "))
    return json.loads(line.removeprefix("FOUND "))


@pytest.fixture(scope="module")
def victim(jobs: Any) -> str:
    """Return the name of another job that has ended, with a model; the next job's name begins with this name."""
    script = "import os; open(os.environ['SM_MODEL_DIR'] + '/weights', 'w').write('w'); print('the log of another')"
    job = jobs.run(script, name=f"roles-{uuid.uuid4().hex[:8]}-1")
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    return str(job["TrainingJobName"])


@pytest.fixture(scope="module")
def data(jobs: Any) -> str:
    """Return a bucket that belongs to no job, with one object."""
    bucket = f"data-{uuid.uuid4().hex[:8]}"
    jobs.s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    jobs.s3.put_object(Bucket=bucket, Key="train/a.csv", Body=b"1,2")
    return bucket


def test_a_job_does_its_own_work_and_nothing_to_others(jobs: Any, victim: str, data: str) -> None:
    name, model = f"{victim}0", f"out/{victim}/output/model.tar.gz"  # job-1 and job-10
    before = jobs.object(f"s3://{BUCKET}/{model}")
    given_input = f"tidemill-inputs/{uuid.uuid4().hex}/a.csv"
    jobs.s3.put_object(Bucket=BUCKET, Key=given_input, Body=b"1,2")
    streams = jobs.logs_client.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{victim}/")
    names = {
        "victim": victim,
        "data": data,
        "model": model,
        "given_input": given_input,
        "stream": streams["logStreams"][0]["logStreamName"],
        "request": jobs.request("print()"),
    }
    model_dir = json.dumps(f"s3://{BUCKET}/models/mine")
    attempts = {**ALLOWED, **DENIED_BY_S3, **DENIED_BY_JSON, **OTHERS}
    found = attempt(jobs, attempts, names=names, name=name, HyperParameters={"model_dir": model_dir})

    assert {key: found[key] for key in ALLOWED if found[key][0] != "ok"} == {}
    assert found["read another bucket"] == ["ok", "1,2"]
    assert found["presign a read"] == ["ok", 200]
    assert found["get its keys as a container"] == ["ok", True]
    assert {key: found[key] for key in DENIED_BY_S3 if found[key][:2] != ["AccessDenied", 403]} == {}
    assert {key: found[key] for key in DENIED_BY_JSON if found[key][:2] != ["AccessDeniedException", 400]} == {}
    assert found["invoke an endpoint"][:2] == ["AccessDeniedException", 403]
    for key in ("forge another job's log", "write into another job's log"):
        assert found[key][:2] == ["InvalidParameterException", 400]
    (event,) = jobs.logs_client.filter_log_events(logGroupName=f"/team/{name}")["events"]
    assert event["message"] == "of a job"
    assert found["ask for a role"][:2] == ["AccessDenied", 403]
    assert found["presign a forgery"] == found["presign it in the new way"] == ["ok", [403, "AccessDenied"]]
    [error] = found["delete its own and another's"][1]
    assert (error["Key"], error["Code"]) == (model, "AccessDenied")
    assert found["delete another model"][2].startswith(
        f"User: arn:aws:sts::{ACCOUNT}:assumed-role/SageMakerRole/{name} is not authorized to perform: s3:DeleteObject"
        f" on resource: arn:aws:s3:::{BUCKET}/{model}: "
    )
    # The store is unchanged.
    assert jobs.object(f"s3://{BUCKET}/{model}") == before
    assert jobs.object(f"s3://{BUCKET}/{given_input}") == b"1,2"
    stored = jobs.s3.list_objects_v2(Bucket=BUCKET, Prefix=f"out/{name}/")["Contents"]
    assert [each["Key"] for each in stored] == [f"out/{name}/big", f"out/{name}/big2"]
    # The log names what was denied, once for each action and folder.
    lines = [line for line in jobs.log(name) if line.startswith("tidemill: AccessDenied for the keys of this job: ")]
    assert len(lines) == len(set(lines)) <= 20
    assert any(f"s3:DeleteObject on arn:aws:s3:::{BUCKET}/{model} (role 'SageMakerRole')" in line for line in lines)
    assert jobs.describe(name)["TrainingJobStatus"] == "Completed"
    assert "FailureReason" not in jobs.describe(name)


# Hides what S3 answers, as the S3 file system of TensorFlow 2.4 does.
HIDES = """
    import boto3

    try:
        boto3.client("s3").put_object(Bucket=BUCKET, Key="logs/events", Body=b"x")
    except Exception:
        raise RuntimeError("AWS Credentials have not been set properly." + "!" * 2000) from None
"""


def test_the_failure_of_a_job_names_what_was_denied_even_if_its_library_hides_that(jobs: Any, data: str) -> None:
    job = jobs.run(f"BUCKET = {data!r}\n{textwrap.dedent(HIDES)}")
    denial = f"AccessDenied for the keys of this job: s3:PutObject on arn:aws:s3:::{data}/logs/events"
    assert job["TrainingJobStatus"] == "Failed"
    assert "AWS Credentials have not been set properly" in job["FailureReason"]
    assert f"\n{denial} (role 'SageMakerRole')" in job["FailureReason"]
    assert len(job["FailureReason"]) <= 1024
    assert [line for line in jobs.log(job["TrainingJobName"]) if denial in line] == [
        f"tidemill: {denial} (role 'SageMakerRole')"
    ]


# Ends as AWS's SDK's program does if neither the result nor the error of a remote function can be written.
REMOTE_FUNCTION = """
    import sys
    import boto3

    def put(name):
        boto3.client("s3").put_object(Bucket=BUCKET, Key=f"root/job/{name}/payload.pkl", Body=b"x")

    exit_code = 0
    try:
        try:
            put("results")
        except Exception as error:
            open("/opt/ml/output/failure", "w").write(repr(error))
            put("exception")
            exit_code = 1
    finally:
        sys.exit(exit_code)
"""


def remote_function(jobs: Any, *, bucket: str, output: str) -> Any:
    """Run a job as AWS's SDK's ``@remote`` does: its own command, with its program in a channel."""
    channel, prefix = "sagemaker_remote_function_bootstrap", f"bootstrap/{uuid.uuid4().hex}"
    program = f"BUCKET = {bucket!r}\n{textwrap.dedent(REMOTE_FUNCTION)}"
    jobs.s3.put_object(Bucket=BUCKET, Key=f"{prefix}/invoke.py", Body=program.encode())
    driver = f"#!/bin/bash\nset -eu\npython /opt/ml/input/data/{channel}/invoke.py\n"
    jobs.s3.put_object(Bucket=BUCKET, Key=f"{prefix}/job_driver.sh", Body=driver.encode())
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/{prefix}/"}
    command = ["/bin/bash", f"/opt/ml/input/data/{channel}/job_driver.sh"]
    algorithm = {**jobs.request("")["AlgorithmSpecification"], "ContainerEntrypoint": command}
    return jobs.run(
        "",
        AlgorithmSpecification=algorithm,
        InputDataConfig=[{"ChannelName": channel, "DataSource": {"S3DataSource": source}}],
        OutputDataConfig={"S3OutputPath": output},
    )


def test_a_remote_function_fails_if_its_result_cannot_be_written(jobs: Any, data: str) -> None:
    job = remote_function(jobs, bucket=data, output=f"s3://{BUCKET}/out")
    assert job["TrainingJobStatus"] == "Failed"
    assert f"s3:PutObject on resource: arn:aws:s3:::{data}/root/job/results/payload.pkl" in job["FailureReason"]


def test_a_remote_function_writes_its_result_where_its_request_says(jobs: Any, data: str) -> None:
    job = remote_function(jobs, bucket=data, output=f"s3://{data}/root/job")
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    assert jobs.object(f"s3://{data}/root/job/results/payload.pkl") == b"x"


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
        other = attempt(jobs, {key: attempts[key] for key in ("list all buckets", "list jobs")})
    assert found["list all buckets"] == ["ok", [BUCKET]]
    assert [found[key][0] for key in ("write", "delete", "list jobs")] == ["ok"] * 3
    assert found["delete what is kept"][0] == "AccessDenied"
    assert "the role 'archivist', and a statement of its policy denies it" in found["delete what is kept"][2]
    assert found["describe itself"][0] == "AccessDeniedException"
    assert [other[key][0] for key in ("list all buckets", "list jobs")] == ["ok", "AccessDeniedException"]


# Prints its keys, ends when there is an object `go` below its output, and then writes an object itself.
HOLD = """
    import os, time
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    print("KEYS", *(os.environ[name] for name in names), flush=True)
    s3, own = boto3.client("s3"), f"out/{os.environ['TRAINING_JOB_NAME']}"
    for _ in range(1200):
        try:
            s3.head_object(Bucket="sagemaker-us-west-2-000000000000", Key=f"{own}/go")
            break
        except (BotoCoreError, ClientError):
            time.sleep(0.1)
    s3.put_object(Bucket="sagemaker-us-west-2-000000000000", Key=f"{own}/said", Body=b"done")
"""


class Holding:
    """A job that runs until it is released, and its keys."""

    def __init__(self, jobs: Any, **options: Any) -> None:
        self.jobs = jobs
        self.name = jobs.create(HOLD, **options)
        jobs.wait(self.name, until=("Training",))
        self.keys = self._keys()

    @property
    def own(self) -> str:
        return f"out/{self.name}"

    def client(self, service: str) -> Any:
        """Return a client with the job's keys that never retries."""
        session = boto3.Session(*self.keys, region_name="us-west-2")
        config = Config(retries={"total_max_attempts": 1})
        return session.client(service, endpoint_url=self.jobs.service.url, config=config)

    def put(self, path: str) -> tuple[int, str]:
        """Send a PUT for a path exactly as written; return status and error code."""
        url = f"{self.jobs.service.url}{path}"
        request = AWSRequest("PUT", url, data=b"raw")
        S3SigV4Auth(Credentials(*self.keys), "s3", "us-west-2").add_auth(request)
        connection = http.client.HTTPConnection(urlsplit(url).netloc)
        connection.request("PUT", path, body=b"raw", headers=dict(request.headers))
        reply = connection.getresponse()
        text = reply.read().decode()
        connection.close()
        return reply.status, text.partition("<Code>")[2].partition("<")[0]

    def release(self) -> dict[str, Any]:
        """Let the job end, and return its description."""
        self.jobs.s3.put_object(Bucket=BUCKET, Key=f"{self.own}/go", Body=b"")
        return self.jobs.wait(self.name)

    def _keys(self) -> list[str]:
        def printed() -> str | None:
            return next((line for line in self.jobs.log(self.name) if line.startswith("KEYS ")), None)

        return self.jobs.wait_until(printed, "the keys in the job's log").split()[1:]


def test_a_path_is_compared_literally_even_if_it_looks_relative(jobs: Any, data: str) -> None:
    job = Holding(jobs, HyperParameters={"model_dir": json.dumps(f"s3://{data}/models/mine")})
    own, other = "models/mine", "models/other"
    jobs.s3.put_object(Bucket=data, Key=f"{other}/x", Body=b"of a user")
    paths = {
        f"/{data}/{own}/../other/x": f"{own}/../other/x",
        f"/{data}/{own}/..%2Fother%2Fy": f"{own}/../other/y",
        f"/{data}/{own}//x": f"{own}//x",
        f"/{data}/models%2Fmine%2Fescaped": f"{own}/escaped",
        f"/{data}/{own}/%252E%252E": f"{own}/%2E%2E",
    }
    denied = (
        f"/{data}/models/./mine/x",
        f"/{data}/models/x/../mine/x",
        f"/{data}//{own}/x",
        f"/{data}/models%252Fmine/x",
        f"/{data}/{own}%252Fx",
        f"/{data}/{own}0/x",
        f"/{data}/{own}",
        f"/{data}%2Fmodels/mine/x",
        f"/{data}/{BUCKET}/x",
        f"/{data}/{other}/x",
    )
    assert {path: job.put(path) for path in paths} == dict.fromkeys(paths, (200, ""))
    assert {path: job.put(path) for path in denied} == dict.fromkeys(denied, (403, "AccessDenied"))
    # The name of a bucket has no slash, so there is no such bucket, and none can be created.
    assert job.put(f"/{data}%2F{BUCKET}/x") == (404, "NoSuchBucket")
    listed = jobs.s3.list_objects_v2(Bucket=data, Prefix=f"{own}/")["Contents"]
    assert sorted(each["Key"] for each in listed) == sorted(paths.values())
    assert jobs.object(f"s3://{data}/{other}/x") == b"of a user"
    assert job.release()["TrainingJobStatus"] == "Completed"


def test_keys_of_a_job_end_with_it(jobs: Any) -> None:
    job = Holding(jobs)
    sts = job.client("sts")
    assert sts.get_caller_identity()["Arn"].endswith(f"/{job.name}")
    job.release()
    with pytest.raises(ClientError) as caught:
        sts.get_caller_identity()
    assert caught.value.response["Error"]["Code"] == "UnrecognizedClientException"


def test_a_policy_of_a_later_start_applies_to_jobs_that_run(jobs_of: Any, tmp_path: Path) -> None:
    with Service(state_dir=tmp_path / "state") as service:
        job = Holding(jobs_of(service))
        job.client("s3").put_object(Bucket=BUCKET, Key=f"{job.own}/a", Body=b"1")
        service.stop()
        policy = {"Statement": {"Effect": "Allow", "Action": "s3:Get*", "Resource": "*"}}
        with Service(state_dir=service.state_dir, settings={"roles": {"SageMakerRole": policy}}) as later:
            job.jobs = jobs_of(later)
            s3 = job.client("s3")
            assert s3.get_object(Bucket=BUCKET, Key=f"{job.own}/a")["Body"].read() == b"1"
            with pytest.raises(ClientError, match="AccessDenied"):
                s3.put_object(Bucket=BUCKET, Key=f"{job.own}/a", Body=b"1")


def test_a_job_of_an_earlier_version_is_taken_over_with_the_rights_of_this_one(jobs_of: Any) -> None:
    with Service() as service:
        job = Holding(jobs_of(service))
        service.kill()
        asyncio.run(_forget_rights(service.state_dir, job.keys[0]))
        service.start()
        s3 = job.client("s3")
        assert "Contents" not in s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{job.own}/")
        s3.put_object(Bucket=BUCKET, Key=f"{job.own}/a", Body=b"1")
        job.jobs.s3.create_bucket(Bucket="data-1", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
        with pytest.raises(ClientError, match="AccessDenied"):
            s3.put_object(Bucket="data-1", Key="a", Body=b"1")
        ended = job.release()
        assert ended["TrainingJobStatus"] == "Completed", ended.get("FailureReason")
        assert job.jobs.object(f"s3://{BUCKET}/{job.own}/said") == b"done"


async def _forget_rights(state_dir: Path, key_id: str) -> None:
    """Reduce stored keys to what versions without rights stored."""
    with SqliteDatabase.open(state_dir / "state.db", metadata=metadata) as database:
        records = SqlRecordStore(database, clock=SystemClock())

        def forget(record: Record) -> Record:
            kept = {name: value for name, value in record.document.items() if name not in ("role", "scope")}
            assert len(kept) == len(record.document) - 2
            return replace(record, document=kept)

        assert await records.update("credential", key_id, forget) is not None
