"""Data capture: store a sample of requests and answers as JSON Lines below the configured prefix.

Records are buffered in memory, one file per endpoint, variant and hour, until the file has 1 MB or its first record
is 30 s old; the service writes all files when it ends. So no request waits for S3, and kill -9 loses at most the
records of 30 s. If a file cannot be written, it is retried; beyond 64 MB of buffered records the oldest file is
dropped, with a line in the service's log. Answers with status 400 and above are not captured.
"""

import asyncio
import base64
import json
import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

import structlog

from tidemill.control.endpoints.traffic import ModelCall
from tidemill.control.invoker import Answer
from tidemill.core.clock import Clock
from tidemill.core.names import S3Uri
from tidemill.errors import AwsError

_log = structlog.get_logger("tidemill.capture")
_FILE_BYTES = 1 << 20
_WAIT_S = 30.0
_LOOK_S = 1.0
_LIMIT_BYTES = 64 << 20
_OCTETS = "application/octet-stream"


class CaptureStore(Protocol):
    """Stores captured data."""

    async def put_bytes(self, bucket: str, key: str, data: bytes) -> Any:
        """Store an object.

        Args:
            bucket: Name of the bucket.
            key: The key.
            data: The bytes.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """The source of a captured request, and its capture configuration.

    Attributes:
        endpoint: Name of the endpoint.
        variant: Name of the variant that answered.
        config: The endpoint's DataCaptureConfig.
        inference_id: InferenceId of the request; may be empty.
    """

    endpoint: str
    variant: str
    config: Mapping[str, Any]
    inference_id: str = ""


@dataclass(slots=True)
class _File:
    began_s: float
    began_ms: int
    lines: list[bytes] = field(default_factory=list)
    size_bytes: int = 0


_Place = tuple[str, str, str, str]
"""Destination, endpoint, variant, and ``yyyy/mm/dd/hh``."""


class Capture:
    """Samples and stores requests and answers.

    Args:
        objects: Stores the files.
        chance: Random numbers that select the sample; by default seeded by the system.
    """

    def __init__(self, objects: CaptureStore, *, clock: Clock, chance: random.Random | None = None) -> None:
        self._objects = objects
        self._clock = clock
        self._chance = chance or random.Random()  # noqa: S311 - a sample, no secret
        self._files: dict[_Place, _File] = {}
        self._waiting_bytes = 0

    def note(self, captured: Captured, call: ModelCall, answer: Answer) -> None:
        """Buffer a request and its answer, if the sample includes them.

        Args:
            captured: Source of the request, and the capture configuration.
            call: The request.
        """
        config = captured.config
        if answer.status >= 400 or self._chance.random() * 100 >= config["InitialSamplingPercentage"]:
            return
        at_ms = self._clock.now_ms()
        line = json.dumps(_record(captured, call, answer, at_ms=at_ms)).encode() + b"\n"
        hour = datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%Y/%m/%d/%H")
        place = (config["DestinationS3Uri"], captured.endpoint, captured.variant, hour)
        file = self._files.get(place)
        if file is None:
            file = self._files[place] = _File(self._clock.monotonic_s(), at_ms)
        file.lines.append(line)
        file.size_bytes += len(line)
        self._waiting_bytes += len(line)
        self._bound()

    async def run(self) -> None:
        """Write files when they are full or old enough, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self.flush(older_than_s=_WAIT_S)

    async def flush(self, *, older_than_s: float = 0) -> None:
        """Write all files that are full, or whose first record is older than that many seconds.

        Args:
            older_than_s: Seconds since the first record. Default: all files.
        """
        now_s = self._clock.monotonic_s()
        for place, file in list(self._files.items()):
            if file.size_bytes >= _FILE_BYTES or now_s - file.began_s >= older_than_s:
                # Records that arrive during the write go to a new file.
                del self._files[place]
                self._waiting_bytes -= file.size_bytes
                await self._write(place, file)

    async def _write(self, place: _Place, file: _File) -> None:
        bucket, key = _location(place, file)
        try:
            await self._objects.put_bytes(bucket, key, b"".join(file.lines))
        except asyncio.CancelledError:
            # The service ends, and flushes all files as its last step: better to store this one twice than never.
            self._put_back(place, file)
            raise
        except (AwsError, OSError) as error:
            _log.warning("capture.delayed", bucket=bucket, key=key, records=len(file.lines), reason=str(error))
            self._put_back(place, file)

    def _put_back(self, place: _Place, file: _File) -> None:
        later = self._files.pop(place, None)
        if later is not None:
            file.lines += later.lines
            file.size_bytes += later.size_bytes
            self._waiting_bytes -= later.size_bytes
        file.began_s = self._clock.monotonic_s()
        self._files[place] = file
        self._waiting_bytes += file.size_bytes
        self._bound()

    def _bound(self) -> None:
        while self._waiting_bytes > _LIMIT_BYTES:
            place = next(iter(self._files))
            dropped = self._files.pop(place)
            self._waiting_bytes -= dropped.size_bytes
            _log.error("capture.dropped", endpoint=place[1], variant=place[2], records=len(dropped.lines))


def _location(place: _Place, file: _File) -> tuple[str, str]:
    destination, endpoint, variant, hour = place
    uri = S3Uri.parse(destination.rstrip("/"))
    began = datetime.fromtimestamp(file.began_ms / 1000, tz=UTC)
    name = f"{began:%M-%S}-{file.began_ms % 1000:03d}-{uuid.uuid4()}.jsonl"
    return uri.bucket, "/".join(filter(None, (uri.key, endpoint, variant, hour, name)))


def _record(captured: Captured, call: ModelCall, answer: Answer, *, at_ms: int) -> dict[str, Any]:
    modes = {each["CaptureMode"] for each in captured.config["CaptureOptions"]}
    header = captured.config.get("CaptureContentTypeHeader", {})
    data: dict[str, Any] = {}
    if modes & {"Input", "InputAndOutput"}:
        data["endpointInput"] = _data(call.body, call.headers.get("content-type", _OCTETS), header, mode="INPUT")
    if modes & {"Output", "InputAndOutput"}:
        data["endpointOutput"] = _data(answer.body, answer.headers.get("content-type", _OCTETS), header, mode="OUTPUT")
    event: dict[str, Any] = {"eventId": str(uuid.uuid4())}
    attributes = call.headers.get("x-amzn-sagemaker-custom-attributes")
    if attributes:
        event["customAttributes"] = [attributes]
    if captured.inference_id:
        event["inferenceId"] = captured.inference_id
    at = datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    event["inferenceTime"] = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"captureData": data, "eventMetadata": event, "eventVersion": "0"}


def _data(body: bytes, content_type: str, header: Mapping[str, Any], *, mode: str) -> dict[str, str]:
    encoding, text = _encoded(body, content_type.partition(";")[0].strip().lower(), header)
    return {"observedContentType": content_type, "mode": mode, "data": text, "encoding": encoding}


def _encoded(body: bytes, media_type: str, header: Mapping[str, Any]) -> tuple[str, str]:
    """Return encoding and data: text if the configuration lists the type and it is UTF-8, otherwise Base64."""
    for encoding, member in (("CSV", "CsvContentTypes"), ("JSON", "JsonContentTypes")):
        if media_type in (each.lower() for each in header.get(member, ())):
            try:
                return encoding, body.decode()
            except UnicodeDecodeError:
                break
    return "BASE64", base64.b64encode(body).decode("ascii")
