"""Small services in memory, and the service's HTTP server in a thread, for tests of the wire."""

import asyncio
import contextlib
import hashlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop

from tidemill._shared.http.limits import Limits
from tidemill.errors import AwsError, ResourceInUse
from tidemill.wire.exchange import Context, FileBody, Handler, Reply
from tidemill.wire.gateway import LIMITS, Answer, BodyLimits, Gateway, HttpServer
from tidemill.wire.signing.credentials import Credential

__all__ = ["EXPIRED", "KEY", "SECRET", "TEMPORARY", "Keys", "Toy", "Toys", "serving", "toy_gateway"]

KEY = "AKIDEXAMPLETOYKEY000"
SECRET = "a/secret+of=forty/characters+for/the/toys"
TEMPORARY = Credential("ASIATEMPORARYTOYKEY0", "temporary-secret", "the-session-token", 4_102_444_800_000, "arn:temp")
EXPIRED = Credential("ASIAEXPIREDTOYKEY000", "expired-secret", "old-session-token", 1_000_000_000_000, "arn:old")
MOMENT = datetime(2026, 11, 21, 10, 0, 0, 250_000, tzinfo=UTC)


class Keys:
    """The credentials of all toys."""

    def lookup(self, access_key_id: str) -> Credential | None:
        known = {KEY: Credential(KEY, SECRET, arn="arn:aws:iam::000000000000:user/toy")}
        known |= {credential.access_key_id: credential for credential in (TEMPORARY, EXPIRED)}
        return known.get(access_key_id)


class Anybody:
    """Allows everything to every key: these tests are not about rights."""

    async def handle(
        self, handler: Handler, request: dict[str, Any], context: Context, credential: Credential
    ) -> Mapping[str, Any] | Reply:
        return await handler(request, context)


class ShiftedClock:
    """The machine's clock, shifted."""

    def __init__(self, shift_s: float = 0) -> None:
        self.shift_s = shift_s

    def now_ms(self) -> int:
        import time

        return int((time.time() + self.shift_s) * 1000)

    def monotonic_s(self) -> float:
        import time

        return time.monotonic()


@dataclass
class Toy:
    """A service with given handlers."""

    handlers: Mapping[str, Handler]


@dataclass
class Toys:
    """The requests and objects that the toy services have received."""

    directory: Path
    seen: list[tuple[str, dict[str, Any], Context]] = field(default_factory=list)
    objects: dict[tuple[str, str], tuple[Path, dict[str, Any]]] = field(default_factory=dict)
    parts: dict[int, bytes] = field(default_factory=dict)

    def services(self) -> dict[str, Toy]:
        names = {
            "sagemaker": ["CreateTrainingJob", "DescribeTrainingJob", "ListTrainingJobs", "StopTrainingJob", "AddTags"],
            "sagemaker-runtime": ["InvokeEndpoint", "InvokeEndpointWithResponseStream"],
            "logs": ["DescribeLogStreams", "GetLogEvents"],
            "sts": ["GetCallerIdentity"],
            "iam": ["GetRole", "SimulatePrincipalPolicy"],
            "s3": [
                "PutObject", "GetObject", "HeadObject", "HeadBucket", "ListBuckets", "ListObjectsV2", "DeleteObject",
                "DeleteObjects", "CreateBucket", "GetBucketLocation", "CreateMultipartUpload", "UploadPart",
                "CompleteMultipartUpload", "CopyObject",
            ],
        }  # fmt: skip
        return {service: Toy({name: self._recorded(service, name) for name in ops}) for service, ops in names.items()}

    def _recorded(self, service: str, name: str) -> Handler:
        method = getattr(self, f"{service.replace('-', '_')}_{name}")

        async def handle(request: dict[str, Any], context: Context) -> Mapping[str, Any] | Reply:
            self.seen.append((name, request, context))
            return await method(request)

        return handle

    async def sagemaker_CreateTrainingJob(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["TrainingJobName"] == "taken":
            raise ResourceInUse("Training job names must be unique; 'taken' exists.")
        if request["TrainingJobName"] == "boom":
            raise RuntimeError("the secret inside")
        return {"TrainingJobArn": f"arn:job/{request['TrainingJobName']}", "Stray": 1}

    async def sagemaker_DescribeTrainingJob(self, request: dict[str, Any]) -> dict[str, Any]:
        return {
            "TrainingJobName": request["TrainingJobName"],
            "TrainingJobArn": "arn",
            "CreationTime": MOMENT,
            "TrainingJobStatus": "InProgress",
            "SecondaryStatus": "Training",
            "ModelArtifacts": {"S3ModelArtifacts": ""},
            "AlgorithmSpecification": {"TrainingInputMode": "File"},
            "FailureReason": None,
        }

    async def sagemaker_ListTrainingJobs(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"TrainingJobSummaries": []}

    async def sagemaker_AddTags(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"Tags": request["Tags"]}

    async def sagemaker_StopTrainingJob(self, request: dict[str, Any]) -> dict[str, Any]:
        return {}

    async def sagemaker_runtime_InvokeEndpoint(self, request: dict[str, Any]) -> dict[str, Any]:
        if request.get("TargetVariant") == "broken":
            raise AwsError(
                "Received server error (500) from primary.",
                code="ModelError",
                status=424,
                members={"OriginalStatusCode": 500, "OriginalMessage": "boom", "LogStreamArn": "arn:log"},
            )
        return {
            "Body": request["Body"][::-1],
            "ContentType": request.get("Accept", "text/plain"),
            "InvokedProductionVariant": "AllTraffic",
            "CustomAttributes": request.get("CustomAttributes"),
        }

    async def sagemaker_runtime_InvokeEndpointWithResponseStream(self, request: dict[str, Any]) -> dict[str, Any]:
        async def parts() -> AsyncIterator[dict[str, Any]]:
            for piece in (b"one", b"two"):
                yield {"PayloadPart": {"Bytes": piece}}

        return {"Body": parts(), "ContentType": "text/plain"}

    async def logs_DescribeLogStreams(self, request: dict[str, Any]) -> dict[str, Any]:
        if not request.get("logStreamNamePrefix"):
            raise AwsError("The specified log group does not exist.", code="ResourceNotFoundException", status=400)
        return {"logStreams": [{"logStreamName": f"{request['logStreamNamePrefix']}algo-1", "creationTime": 5}]}

    async def logs_GetLogEvents(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"events": [{"timestamp": 5, "message": "ü <b>", "ingestionTime": 6}], "nextForwardToken": "f/5"}

    async def sts_GetCallerIdentity(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"UserId": "AIDA", "Account": "000000000000", "Arn": "arn:aws:sts::000000000000:assumed-role/R&D/user"}

    async def iam_GetRole(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["RoleName"] == "absent":
            raise AwsError("The role with name absent cannot be found.", code="NoSuchEntity", status=404)
        return {
            "Role": {
                "Path": "/",
                "RoleName": request["RoleName"],
                "RoleId": "AROA0123456789ABCDEF",
                "Arn": f"arn:aws:iam::000000000000:role/{request['RoleName']}",
                "CreateDate": MOMENT,
            }
        }

    async def iam_SimulatePrincipalPolicy(self, request: dict[str, Any]) -> dict[str, Any]:
        results = [{"EvalActionName": name, "EvalDecision": "allowed"} for name in request["ActionNames"]]
        return {"EvaluationResults": results, "IsTruncated": False}

    async def s3_PutObject(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["Bucket"] == "absent":
            raise AwsError("The specified bucket does not exist", code="NoSuchBucket", status=404)
        body = request["Body"]
        data = await body.read()
        path = self.directory / hashlib.sha256(f"{request['Bucket']}/{request['Key']}".encode()).hexdigest()
        path.write_bytes(data)
        stored = {name: request[name] for name in ("Metadata", "ContentType", "ContentEncoding") if name in request}
        self.objects[request["Bucket"], request["Key"]] = path, stored | body.checksums
        return {"ETag": _etag(data), **body.checksums}

    async def s3_GetObject(self, request: dict[str, Any]) -> Reply:
        path, stored = self._object(request)
        size, offset, status = path.stat().st_size, 0, 200
        found = dict(stored)
        if "Range" in request:
            first, last = request["Range"].removeprefix("bytes=").split("-")
            last = last or str(size - 1)
            offset, status = int(first), 206
            found = {k: v for k, v in found.items() if not k.startswith("Checksum")}
            found["ContentRange"] = f"bytes {first}-{last}/{size}"
            size = int(last) + 1 - offset
        found |= {"Body": FileBody(path=path, offset=offset, size_bytes=size), "ETag": '"e"', "LastModified": MOMENT}
        if "ResponseContentDisposition" in request:
            found["ContentDisposition"] = request["ResponseContentDisposition"]
        return Reply(members=found, status=status)

    async def s3_HeadObject(self, request: dict[str, Any]) -> dict[str, Any]:
        path, stored = self._object(request)
        return {"ContentLength": path.stat().st_size, "LastModified": MOMENT, **stored}

    async def s3_HeadBucket(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["Bucket"] == "absent":
            raise AwsError("The specified bucket does not exist", code="NoSuchBucket", status=404)
        return {"BucketRegion": "us-west-2"}

    async def s3_ListBuckets(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"Buckets": [{"Name": "b<1>", "CreationDate": MOMENT}], "Owner": {"ID": "o", "DisplayName": "o"}}

    async def s3_ListObjectsV2(self, request: dict[str, Any]) -> dict[str, Any]:
        contents = [
            {"Key": key, "Size": path.stat().st_size, "LastModified": MOMENT, "ETag": '"e"', "StorageClass": "STANDARD"}
            for (bucket, key), (path, _) in sorted(self.objects.items())
            if bucket == request["Bucket"]
        ]
        return {"Contents": contents, "Name": request["Bucket"], "KeyCount": len(contents), "IsTruncated": False}

    async def s3_DeleteObject(self, request: dict[str, Any]) -> dict[str, Any]:
        return {}

    async def s3_DeleteObjects(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"Deleted": [{"Key": entry["Key"]} for entry in request["Delete"]["Objects"]]}

    async def s3_CreateBucket(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"Location": f"/{request['Bucket']}"}

    async def s3_GetBucketLocation(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"LocationConstraint": "us-west-2"}

    async def s3_CreateMultipartUpload(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"Bucket": request["Bucket"], "Key": request["Key"], "UploadId": "u1"}

    async def s3_UploadPart(self, request: dict[str, Any]) -> dict[str, Any]:
        data = await request["Body"].read()
        self.parts[request["PartNumber"]] = data
        return {"ETag": _etag(data), **request["Body"].checksums}

    async def s3_CompleteMultipartUpload(self, request: dict[str, Any]) -> dict[str, Any]:
        numbers = [part["PartNumber"] for part in request["MultipartUpload"]["Parts"]]
        data = b"".join(self.parts[number] for number in numbers)
        path = self.directory / "multipart"
        path.write_bytes(data)
        self.objects[request["Bucket"], request["Key"]] = path, {}
        return {"Bucket": request["Bucket"], "Key": request["Key"], "ETag": f'"x-{len(numbers)}"'}

    async def s3_CopyObject(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"CopyObjectResult": {"ETag": '"copied"', "LastModified": MOMENT}}

    def _object(self, request: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
        found = self.objects.get((request["Bucket"], request["Key"]))
        if found is None:
            raise AwsError("The specified key does not exist.", code="NoSuchKey", status=404)
        return found


def toy_gateway(toys: Toys, *, clock: ShiftedClock | None = None, **options: Any) -> Gateway:
    """Return a gateway in front of the toys."""
    limits = options.pop("limits", BodyLimits(object_bytes=64 * 1024 * 1024))
    options = {"region": "us-west-2", "clock": clock or ShiftedClock(), "limits": limits, **options}
    return Gateway(toys.services(), Keys(), authorizer=Anybody(), **options)


@contextlib.contextmanager
def serving(answer: Answer, *, limits: Limits = LIMITS, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Answer requests on a free loopback port, and yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as sock, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        loop = runner.get_loop()
        listening, stop = threading.Event(), asyncio.Event()

        async def serve() -> None:
            server = HttpServer(answer, limits=limits)
            await server.listener.open(sock, tls=tls)
            listening.set()
            await stop.wait()
            await server.drain(timeout_s=5)

        thread = threading.Thread(target=runner.run, args=(serve(),), daemon=True)
        thread.start()
        listening.wait(20)
        try:
            yield sock.getsockname()[1]
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(20)


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
