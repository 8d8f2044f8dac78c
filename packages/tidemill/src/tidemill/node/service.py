"""The agent's client of the service: send reports and log lines, transfer S3 objects, with the keys of the job."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import botocore.loaders
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tidemill.core.instances import InstanceRef, ObjectReference
from tidemill.core.names import S3Uri
from tidemill.instance.records import exit_to_json
from tidemill.instance.remote_s3 import upload, upload_client
from tidemill.instance.status import InstanceExit, Phase, RelayReport, StopReason
from tidemill.wire.protocols.models import OWN_MODELS

LOG_CHUNK_BYTES = 1024 * 1024
_SERVER_FAULTS = 500
_TRANSIENT = frozenset((408, 429))
"""Refusals that say nothing about the attempt: a busy machine sent a request too slowly, or too many came at once."""
_CLOCKS_DIFFER = "RequestTimeTooSkewed"
"""A machine may have a wrong time of day just after its start. That says nothing about the attempt."""


class AttemptOver(Exception):
    """The service accepts no more reports of this attempt; end the attempt."""


class ServiceAway(Exception):
    """The service could not be reached, or failed; the same request may succeed later."""


class ServiceClient:
    """Client of the service for one attempt of an instance. Methods may be called from several threads.

    Args:
        variables: ``AWS_ENDPOINT_URL``, region and keys of the job.
        answer_s: Time limit in seconds for the answer to a report or to lines of the log. Default: 30.
    """

    def __init__(self, ref: InstanceRef, variables: Mapping[str, str], *, answer_s: float = 30.0) -> None:
        session = botocore.session.Session()
        session.register_component("data_loader", botocore.loaders.create_loader(str(OWN_MODELS)))
        # No retries here: the agent repeats requests itself, and only the newest report matters.
        config = Config(connect_timeout=5, read_timeout=answer_s, retries={"total_max_attempts": 1}, proxies={})
        self._api: Any = session.create_client(
            "tidemill-instances",
            region_name=variables["AWS_REGION"],
            endpoint_url=variables["AWS_ENDPOINT_URL"],
            aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
            aws_session_token=variables.get("AWS_SESSION_TOKEN"),
            config=config,
        )
        self._s3 = upload_client(variables)
        self._attempt = {"JobId": ref.job_id, "InstanceIndex": ref.instance_index, "Attempt": ref.attempt}

    def report(
        self,
        phases: Sequence[Phase] = (),
        *,
        ended: InstanceExit | None = None,
        lost: bool = False,
        relay: RelayReport | None = None,
        wait_s: int = 0,
    ) -> StopReason | None:
        """Send a report, which renews the lease. Return why the instance is to stop; None if it may continue.

        Args:
            phases: All phases so far. Default: they have not changed.
            ended: The result of the instance. Default: the instance runs.
            lost: Whether the instance has ended without a result.
            relay: Where the service reaches the model server. Default: nothing new.
            wait_s: Seconds for which the service may delay its answer, to return a later stop at once; at most 20.
                Default: 0.

        Raises:
            AttemptOver: The service accepts no more reports of the attempt.
            ServiceAway: The service did not process the report; send it again later.
        """
        members: dict[str, Any] = {"Lost": lost, "WaitSeconds": wait_s}
        if phases:
            members["Phases"] = [
                {"Status": each.status, "StartedMs": each.started_ms, "Message": each.message} for each in phases
            ]
        if relay is not None:
            members["Relay"] = {"Port": relay.port, "Certificate": relay.certificate}
        if ended is not None:
            members["Exit"] = json.dumps(exit_to_json(ended))
        stop = self._call(self._api.report_instance, **members).get("StopReason")
        return StopReason(stop) if stop else None

    def deliver(self, lines: bytes, *, offset: int) -> int:
        """Deliver lines of the log. Return how many bytes of the log the service has, as `InstanceReports.deliver`.

        Args:
            offset: Offset of ``lines`` in the attempt's log, in bytes.

        Raises:
            AttemptOver: The service accepts no more lines of the attempt.
            ServiceAway: The service did not store the lines; deliver them again later.
        """
        return int(self._call(self._api.deliver_log, Lines=lines, Offset=offset)["ReceivedBytes"])

    def deliver_samples(self, lines: bytes) -> None:
        """Deliver samples of what the instance uses; those that the service has are ignored.

        Args:
            lines: Whole lines of its file of samples.

        Raises:
            AttemptOver: The service accepts no more samples of the attempt.
            ServiceAway: The service did not store them; deliver them again later.
        """
        self._call(self._api.deliver_samples, Lines=lines)

    def download(self, source: ObjectReference, target: Path) -> None:
        """Download an object in the version that it had when the job was planned.

        Args:
            target: The file to write; an existing file is replaced.

        Raises:
            ClientError: The object was deleted or replaced, or the job's role may not read it.
            ServiceAway: The download failed; try again later.
        """
        uri = S3Uri.parse(source.uri)
        try:
            body = self._s3.get_object(Bucket=uri.bucket, Key=uri.key, IfMatch=f'"{source.etag}"')["Body"]
            with target.open("wb") as file:
                for chunk in body.iter_chunks(1 << 20):
                    file.write(chunk)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] < _SERVER_FAULTS:
                raise
            raise ServiceAway(str(error)) from error
        except BotoCoreError as error:
            raise ServiceAway(str(error)) from error

    def upload(self, source: Path, uri: str) -> None:
        """Upload a file, in parts if it is large.

        Args:
            uri: S3 URI of the object to write.

        Raises:
            UploadRefused: The store refuses the object, e.g. because the bucket does not exist.
            ServiceAway: The upload failed; try again later.
        """
        target = S3Uri.parse(uri)
        with source.open("rb") as file:
            try:
                upload(self._s3, file, bucket=target.bucket, key=target.key)
            except OSError as error:
                raise ServiceAway(str(error)) from error

    def _call(self, operation: Any, **members: Any) -> dict[str, Any]:
        try:
            return dict(operation(**self._attempt, **members))
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            is_refusal = status < _SERVER_FAULTS and status not in _TRANSIENT
            if is_refusal and error.response["Error"]["Code"] != _CLOCKS_DIFFER:
                raise AttemptOver(str(error)) from error
            raise ServiceAway(str(error)) from error
        except BotoCoreError as error:
            raise ServiceAway(f"{type(error).__name__}: {error}") from error
