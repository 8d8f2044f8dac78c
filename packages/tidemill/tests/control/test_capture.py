"""Data capture: the content and the keys of the files, and what happens while they cannot be written."""

import asyncio
import base64
import json
import random
import re
from typing import Any

import pytest

from tidemill.control.endpoints.capture import Capture, Captured
from tidemill.control.endpoints.traffic import ModelCall
from tidemill.control.invoker import Answer
from tidemill.errors import ServiceUnavailable

CONFIG = {
    "InitialSamplingPercentage": 100,
    "DestinationS3Uri": "s3://data/capture/",
    "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
    "CaptureContentTypeHeader": {"CsvContentTypes": ["text/csv"], "JsonContentTypes": ["application/json"]},
}
KEY = re.compile(r"capture/digits/v1/2023/11/14/22/13-20-123-[0-9a-f-]{36}\.jsonl")


class SetClock:
    def __init__(self) -> None:
        self.ms = 1_700_000_000_123

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000


class Bucket:
    """Stores objects, or refuses them."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.full = False

    async def put_bytes(self, bucket: str, key: str, data: bytes) -> None:
        if self.full:
            raise ServiceUnavailable("no space left")
        assert bucket == "data"
        self.objects[key] = data

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for data in self.objects.values() for line in data.splitlines()]


def invoke(
    capture: Capture,
    body: bytes = b"1,2",
    answer: bytes = b'{"y": 1}',
    *,
    content_type: str = "text/csv",
    status: int = 200,
    **config: Any,
) -> None:
    call = ModelCall(body=body, headers={"content-type": content_type}, timeout_s=1)
    captured = Captured(endpoint="digits", variant="v1", config={**CONFIG, **config}, inference_id="i-7")
    capture.note(captured, call, Answer(status, {"content-type": "application/json; charset=utf-8"}, answer))


def flush(capture: Capture, **options: Any) -> None:
    asyncio.run(capture.flush(**options))


def test_a_request_and_its_answer_are_a_line_below_endpoint_variant_and_hour() -> None:
    bucket = Bucket()
    capture = Capture(bucket, clock=SetClock())
    invoke(capture)
    flush(capture)
    ((key, data),) = bucket.objects.items()
    assert KEY.fullmatch(key)
    assert data.endswith(b"\n")
    (record,) = bucket.records
    assert record.pop("eventMetadata").keys() == {"eventId", "inferenceId", "inferenceTime"}
    assert record == {
        "captureData": {
            "endpointInput": {
                "observedContentType": "text/csv",
                "mode": "INPUT",
                "data": "1,2",
                "encoding": "CSV",
            },
            "endpointOutput": {
                "observedContentType": "application/json; charset=utf-8",
                "mode": "OUTPUT",
                "data": '{"y": 1}',
                "encoding": "JSON",
            },
        },
        "eventVersion": "0",
    }


@pytest.mark.parametrize(
    ("modes", "parts"),
    [
        (["Input"], {"endpointInput"}),
        (["Output"], {"endpointOutput"}),
        (["InputAndOutput"], {"endpointInput", "endpointOutput"}),
    ],
)
def test_only_the_parts_that_are_asked_for_are_captured(modes: list[str], parts: set[str]) -> None:
    bucket = Bucket()
    capture = Capture(bucket, clock=SetClock())
    invoke(capture, CaptureOptions=[{"CaptureMode": mode} for mode in modes])
    flush(capture)
    assert bucket.records[0]["captureData"].keys() == parts


def test_data_of_other_types_and_text_that_is_none_are_captured_in_base64() -> None:
    bucket = Bucket()
    capture = Capture(bucket, clock=SetClock())
    for content_type in ("application/x-npy", "text/csv"):
        invoke(capture, b"\xff\x00", content_type=content_type)
    flush(capture)
    for record in bucket.records:
        data = record["captureData"]["endpointInput"]
        assert (data["encoding"], base64.b64decode(data["data"])) == ("BASE64", b"\xff\x00")


def test_a_share_of_the_requests_is_captured_and_no_errors() -> None:
    bucket = Bucket()
    capture = Capture(bucket, clock=SetClock(), chance=random.Random(7))
    for _ in range(1000):
        invoke(capture, InitialSamplingPercentage=20)
    invoke(capture, status=400)
    invoke(capture, InitialSamplingPercentage=0)
    flush(capture)
    assert 150 < len(bucket.records) < 250


def test_files_are_written_when_they_are_old_or_full() -> None:
    bucket, clock = Bucket(), SetClock()
    capture = Capture(bucket, clock=clock)
    invoke(capture)
    flush(capture, older_than_s=30)
    assert bucket.objects == {}
    clock.ms += 30_000
    flush(capture, older_than_s=30)
    assert len(bucket.objects) == 1
    invoke(capture, b"x" * (1 << 20))
    flush(capture, older_than_s=30)
    assert len(bucket.objects) == 2


def test_records_wait_while_a_bucket_refuses_writes_and_are_then_written_in_order() -> None:
    bucket = Bucket()
    capture = Capture(bucket, clock=SetClock())
    bucket.full = True
    invoke(capture, b"1")
    flush(capture)
    invoke(capture, b"2")
    flush(capture)
    bucket.full = False
    flush(capture)
    assert [each["captureData"]["endpointInput"]["data"] for each in bucket.records] == ["1", "2"]


def test_the_size_of_waiting_records_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.control.endpoints.capture._LIMIT_BYTES", 10_000)
    bucket, clock = Bucket(), SetClock()
    bucket.full = True
    capture = Capture(bucket, clock=clock)
    for hour in range(20):
        clock.ms = 1_700_000_000_123 + hour * 3_600_000
        invoke(capture, b"%d" % hour * 500)
        flush(capture)
    bucket.full = False
    flush(capture)
    assert 0 < sum(map(len, bucket.objects.values())) <= 10_000
    assert bucket.records[-1]["captureData"]["endpointInput"]["data"].startswith("19")


def test_a_write_that_the_end_of_the_service_interrupted_is_repeated() -> None:
    class Slow(Bucket):
        async def put_bytes(self, bucket: str, key: str, data: bytes) -> None:
            begun.set()
            await goes_on.wait()
            await super().put_bytes(bucket, key, data)

    begun, goes_on, bucket = asyncio.Event(), asyncio.Event(), Slow()

    async def run() -> None:
        capture = Capture(bucket, clock=SetClock())
        invoke(capture)
        writing = asyncio.create_task(capture.flush())
        await begun.wait()
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        goes_on.set()
        await capture.flush()

    asyncio.run(run())
    assert len(bucket.records) == 1
