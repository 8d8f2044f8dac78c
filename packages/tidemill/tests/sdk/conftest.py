"""A small AWS on loopback: records requests, keeps objects in memory, and plays training jobs frame by frame.

It checks no signatures, and implements only the part of each service that the SDK uses.
"""

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

from tidemill.sdk import Session
from tidemill.sdk.boto import loopback_session

T0_S = 1_700_000_000


@dataclass
class FakeAws:
    """State of the fake; tests read and write it directly."""

    url: str = ""
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    buckets: set[str] = field(default_factory=lambda: {"sagemaker-us-west-2-000000000000"})
    objects: dict[tuple[str, str], bytes] = field(default_factory=dict)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    frames: list[dict[str, Any]] = field(default_factory=list)
    """Each DescribeTrainingJob applies the next frame: members of the description, and ``logs`` by stream."""
    streams: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    endpoints: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Descriptions that DescribeEndpoint returns one after the other; the last one is repeated."""
    packages: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Descriptions of model packages by ARN; CreateModelPackage answers with the first."""
    invocations: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    reply: tuple[str, bytes] = ("application/json", b'{"predictions": [[1.0]]}')
    invocation_status: int = 200
    page_events: int = 2
    """Maximum number of events in a page of GetLogEvents."""
    outage: int = 0
    """Number of SageMaker requests whose connection is closed without an answer."""

    def named(self, operation: str) -> list[dict[str, Any]]:
        """Return the recorded requests of one operation."""
        return [members for name, members in self.requests if name == operation]

    def log(self, stream: str, *messages: str, at_ms: int) -> None:
        """Append lines to a stream."""
        events = [{"timestamp": at_ms, "message": message, "ingestionTime": at_ms} for message in messages]
        self.streams.setdefault(stream, []).extend(events)

    # SageMaker

    def create_model_package_group(self, members: dict[str, Any]) -> dict[str, Any]:
        return {"ModelPackageGroupArn": f"arn:aws:sagemaker:::model-package-group/{members['ModelPackageGroupName']}"}

    def create_model_package(self, members: dict[str, Any]) -> dict[str, Any]:
        return {"ModelPackageArn": next(iter(self.packages))}

    def describe_model_package(self, members: dict[str, Any]) -> dict[str, Any]:
        arn = members["ModelPackageName"]
        return {"ModelPackageArn": arn, "CreationTime": T0_S, **self.packages[arn]}

    def update_model_package(self, members: dict[str, Any]) -> dict[str, Any]:
        return {"ModelPackageArn": members["ModelPackageArn"]}

    def create_training_job(self, members: dict[str, Any]) -> dict[str, Any]:
        name = members["TrainingJobName"]
        self.jobs[name] = {
            **members,
            "TrainingJobArn": f"arn:aws:sagemaker:us-west-2:000000000000:training-job/{name}",
            "TrainingJobStatus": "InProgress",
            "SecondaryStatus": "Starting",
            "CreationTime": T0_S,
            "LastModifiedTime": T0_S,
            "OutputDataConfig": {"KmsKeyId": "", **members["OutputDataConfig"]},
            "ModelArtifacts": {"S3ModelArtifacts": ""},
            "SecondaryStatusTransitions": [{"Status": "Starting", "StartTime": T0_S, "StatusMessage": "Preparing"}],
        }
        return {"TrainingJobArn": self.jobs[name]["TrainingJobArn"]}

    def describe_training_job(self, members: dict[str, Any]) -> dict[str, Any]:
        job = self.jobs[members["TrainingJobName"]]
        if self.frames:
            frame = dict(self.frames.pop(0))
            for stream, events in frame.pop("logs", {}).items():
                for at_ms, message in events:
                    self.log(f"{members['TrainingJobName']}/{stream}", message, at_ms=at_ms)
            job.update(frame)
        return job

    def describe_endpoint(self, members: dict[str, Any]) -> dict[str, Any]:
        name = members["EndpointName"]
        known = self.endpoints.setdefault(name, [{"EndpointStatus": "Creating"}, {"EndpointStatus": "InService"}])
        now = known.pop(0) if len(known) > 1 else known[0]
        return {
            "EndpointName": name,
            "EndpointArn": f"arn:aws:sagemaker:us-west-2:000000000000:endpoint/{name}",
            "EndpointConfigName": name,
            "CreationTime": T0_S,
            "LastModifiedTime": T0_S,
            **now,
        }

    def sagemaker(self, operation: str, members: dict[str, Any]) -> dict[str, Any]:
        arn = "arn:aws:sagemaker:us-west-2:000000000000:thing/name"
        special = {
            "CreateTrainingJob": self.create_training_job,
            "DescribeTrainingJob": self.describe_training_job,
            "CreateModelPackageGroup": self.create_model_package_group,
            "CreateModelPackage": self.create_model_package,
            "DescribeModelPackage": self.describe_model_package,
            "UpdateModelPackage": self.update_model_package,
            "DescribeProcessingJob": lambda members: self.jobs[members["ProcessingJobName"]],
            "DescribeTransformJob": lambda members: self.jobs[members["TransformJobName"]],
            "DescribeEndpoint": self.describe_endpoint,
        }
        if operation in special:
            return special[operation](members)
        return {"ModelArn": arn, "EndpointConfigArn": arn, "EndpointArn": arn, "Tags": []}

    # CloudWatch Logs

    def describe_log_streams(self, members: dict[str, Any]) -> dict[str, Any] | None:
        names = sorted(name for name in self.streams if name.startswith(members["logStreamNamePrefix"]))
        return {"logStreams": [{"logStreamName": name} for name in names]} if names else None

    def get_log_events(self, members: dict[str, Any]) -> dict[str, Any] | None:
        events = self.streams.get(members["logStreamName"])
        if events is None:
            return None
        start = int(members.get("nextToken", "f/0").removeprefix("f/"))
        found = events[start : start + self.page_events]
        return {"events": found, "nextForwardToken": f"f/{start + len(found)}", "nextBackwardToken": "b/0"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    aws: FakeAws

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _handle(self) -> None:
        body = self._body()
        target = self.headers.get("X-Amz-Target", "")
        path = urlsplit(self.path)
        if target:
            self._json(target, json.loads(body or b"{}"))
        elif re.fullmatch(r"/endpoints/[^/]+/invocations", path.path):
            self.aws.invocations.append((path.path.split("/")[2], dict(self.headers), body))
            self._send(self.aws.invocation_status, self.aws.reply[1], self.aws.reply[0])
        elif b"Action=GetCallerIdentity" in body:
            arn = "arn:aws:sts::000000000000:assumed-role/SageMakerRole/user"
            self._send(
                200,
                f"<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>{arn}</Arn><Account>000000000000</Account>"
                "<UserId>U</UserId></GetCallerIdentityResult></GetCallerIdentityResponse>".encode(),
                "text/xml",
            )
        elif b"Action=GetRole" in body:
            self._send(
                200,
                b"<GetRoleResponse><GetRoleResult><Role><Arn>arn:aws:iam::000000000000:role/SageMakerRole"
                b"</Arn><RoleName>SageMakerRole</RoleName></Role></GetRoleResult></GetRoleResponse>",
                "text/xml",
            )
        else:
            self._s3(path.path, parse_qs(path.query, keep_blank_values=True), body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _handle

    def _json(self, target: str, members: dict[str, Any]) -> None:
        service, _, operation = target.partition(".")
        if service == "SageMaker" and self.aws.outage > 0:
            self.aws.outage -= 1
            self.close_connection = True
            return
        self.aws.requests.append((operation, members))
        if service == "SageMaker":
            if operation == "DescribeTrainingJob" and members["TrainingJobName"] not in self.aws.jobs:
                self._error("ValidationException", "Requested resource not found.")
                return
            self._send(200, json.dumps(self.aws.sagemaker(operation, members)).encode())
        else:
            read = self.aws.describe_log_streams if operation == "DescribeLogStreams" else self.aws.get_log_events
            found = read(members)
            if found is None:
                self._error("ResourceNotFoundException", "The specified log group or stream does not exist.")
            else:
                self._send(200, json.dumps(found).encode())

    def _s3(self, path: str, query: dict[str, list[str]], body: bytes) -> None:
        bucket, _, key = unquote(path.lstrip("/")).partition("/")
        self.aws.requests.append((f"{self.command} {'object' if key else 'bucket'}", {"bucket": bucket, "key": key}))
        if not bucket:
            names = "".join(f"<Bucket><Name>{name}</Name></Bucket>" for name in sorted(self.aws.buckets))
            self._send(200, f"<ListAllMyBucketsResult><Buckets>{names}</Buckets></ListAllMyBucketsResult>".encode())
        elif not key and self.command == "PUT":
            self.aws.buckets.add(bucket)
            self._send(200)
        elif bucket not in self.aws.buckets:
            self._send(404)
        elif not key and "list-type" in query:
            self._list(bucket, query.get("prefix", [""])[0])
        elif not key:
            self._send(200)
        elif self.command == "PUT":
            self.aws.objects[bucket, key] = body
            self._send(200, headers={"ETag": '"0"'})
        elif (bucket, key) in self.aws.objects:
            self._send(200, self.aws.objects[bucket, key], "application/octet-stream", {"ETag": '"0"'})
        else:
            self._send(404)

    def _list(self, bucket: str, prefix: str) -> None:
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size></Contents>"
            for (home, key), data in sorted(self.aws.objects.items())
            if home == bucket and key.startswith(prefix)
        )
        self._send(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode())

    def _body(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return body
        whole = b""
        while body:
            size, _, rest = body.partition(b"\r\n")
            count = int(size.split(b";")[0], 16)
            if count == 0:
                break
            whole, body = whole + rest[:count], rest[count + 2 :]
        return whole

    def _error(self, code: str, message: str) -> None:
        self._send(400, json.dumps({"__type": code, "message": message}).encode(), headers={"x-amzn-errortype": code})

    def _send(
        self,
        status: int,
        body: bytes = b"",
        content_type: str = "application/x-amz-json-1.1",
        headers: dict[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": content_type, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@pytest.fixture
def aws() -> Iterator[FakeAws]:
    state = FakeAws()
    handler = type("Handler", (_Handler,), {"aws": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.block_on_close = False
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def session(aws: FakeAws) -> Iterator[Session]:
    made = Session(
        loopback_session(endpoint_url=aws.url, region="us-west-2", access_key_id="AKIA0", secret_access_key="secret")
    )
    yield made
    for client in made._clients.values():
        client.close()
