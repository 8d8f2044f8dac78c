"""Nothing is acknowledged before it would survive a power failure: puts, multipart uploads, creates, publication, logs.

Each test records the calls of a real process (`durability`), and looks at the moment of the acknowledgment. That the
tests can fail is tested, too: without the record of one sync, the same look finds a loss.
"""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from durability import Recording, Trace

from tidemill.core.handed_files import media_type
from tidemill.core.segments import stream_directory
from tidemill.sdk.handed_file import handed_over
from tidemill.testing import Service

ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
REQUESTS = (
    "create bucket",
    "small put",
    "large put",
    "replacing put",
    "begin of upload",
    "part 1",
    "part 2",
    "completion",
    "handed file",
    "copy",
    "delete",
    "create model",
    "create endpoint configuration",
)
WITH_CONTENT = ("small put", "large put", "replacing put", "part 1", "part 2", "completion", "handed file")


def is_content(path: str) -> bool:
    return "/objects/content/" in path


def is_content_directory(path: str) -> bool:
    return path.rpartition("/")[0].endswith("/objects/content")


def is_log(path: str) -> bool:
    return path.endswith("/state.db-wal")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    """The trace of a service that answered `REQUESTS`, one after the other."""
    root = tmp_path_factory.mktemp("durability").resolve()
    recording = Recording(tmp_path_factory.mktemp("recorder"), root=root)
    with Service(state_dir=root / "state", variables=recording.variables) as service:
        s3, sagemaker = service.client("s3"), service.client("sagemaker")
        s3.create_bucket(Bucket="data")
        s3.put_object(Bucket="data", Key="small", Body=b"1")
        s3.put_object(Bucket="data", Key="large", Body=bytes(3 << 20))
        s3.put_object(Bucket="data", Key="small", Body=b"2")
        upload = {"Bucket": "data", "Key": "parts"}
        upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
        parts = [
            {"PartNumber": number, "ETag": s3.upload_part(PartNumber=number, Body=body, **upload)["ETag"]}
            for number, body in ((1, bytes(5 << 20)), (2, b"end"))
        ]
        s3.complete_multipart_upload(MultipartUpload={"Parts": parts}, **upload)
        file = root / "file"
        file.write_bytes(bytes(9 << 20))
        with handed_over(file, str(root / "state/files.sock"), copied=lambda _: None) as ticket:
            s3.put_object(Bucket="data", Key="handed", Body=b"", ContentType=media_type(str(ticket)))
        s3.copy_object(Bucket="data", Key="copy", CopySource="data/large")
        s3.delete_object(Bucket="data", Key="small")
        container = {"Image": "tensorflow-inference:2.21.0-cpu", "ModelDataUrl": "s3://data/model.tar.gz"}
        sagemaker.create_model(ModelName="model", ExecutionRoleArn=ROLE, PrimaryContainer=container)
        variant = {"VariantName": "v", "ModelName": "model", "InitialInstanceCount": 1, "InstanceType": "ml.m5.large"}
        sagemaker.create_endpoint_config(EndpointConfigName="config", ProductionVariants=[variant])
    yield recording.trace()


def windows(trace: Trace) -> dict[str, tuple[int, int]]:
    """Return the positions between which each request was answered, the second one being its acknowledgment."""
    ends = trace.positions("A")
    assert len(ends) == len(REQUESTS), [trace.events[at] for at in ends]
    started = trace.positions("N", lambda path: path.endswith("/service.json"))[-1]
    return dict(zip(REQUESTS, itertools.pairwise([started, *ends]), strict=True))


def losses(trace: Trace, request: str) -> list[str]:
    """Return what a power failure could lose of a request after its acknowledgment, or leave behind before it."""
    begin, end = windows(trace)[request]
    stored = [at for at in trace.positions("N", is_content) if begin < at < end]
    rows = [at for at in trace.positions("W", is_log) if max([begin, *stored]) < at < end]
    if not rows:
        return ["no row was written, or it was written before the content that it names"]
    lost = [] if trace.is_synced(rows[0], before=end) else ["the row"]
    return lost + trace.lost(rows[0], is_content) + trace.lost(end, is_content)


@pytest.mark.parametrize("request_name", REQUESTS)
def test_an_answered_request_survives_a_power_failure(trace: Trace, request_name: str) -> None:
    begin, end = windows(trace)[request_name]
    stored = [at for at in trace.positions("N", is_content) if begin < at < end]
    assert len(stored) == (request_name in WITH_CONTENT)
    assert losses(trace, request_name) == []


@pytest.mark.parametrize(
    ("left_out", "request_name"),
    [
        pytest.param(
            lambda path: is_content(path) and not is_content_directory(path), "part 2", id="the sync of the file"
        ),
        pytest.param(lambda path: "/objects/tmp/" in path, "handed file", id="the sync of a copy"),
        pytest.param(is_content_directory, "completion", id="the sync of its directory"),
        pytest.param(is_log, "create model", id="the sync of the database"),
    ],
)
def test_a_missing_sync_would_be_found(trace: Trace, left_out: Callable[[str], bool], request_name: str) -> None:
    assert losses(trace.without("fF", left_out), request_name) != []


@pytest.mark.parametrize("what", ["the row", "the acknowledgment"])
def test_another_order_would_be_found(trace: Trace, what: str) -> None:
    begin, end = windows(trace)["small put"]
    early = [at for at, each in enumerate(trace.events[:end]) if at > begin and is_log(each.text)]
    if what == "the acknowledgment":
        early = [end]
    moved = [trace.events[at] for at in early]
    others = [each for at, each in enumerate(trace.events) if at not in early]
    assert losses(Trace([*others[: begin + 1], *moved, *others[begin + 1 :]]), "small put") != []


OF_CLIENTS = f"/{stream_directory(Path(), 'clients', 'run')}/"
PROGRAM = """
import asyncio, hashlib, os, sys
from pathlib import Path
from tidemill.core.clock import SystemClock
from tidemill.core.segments import SegmentWriter, create_stream, put_line
from tidemill.core.instances import StreamName
from tidemill.server.state import StateDirectory
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.logs.put_streams import PutStreams
from tidemill.store.logs.sink import SegmentSink
from tidemill.store.objects.store import ObjectStore

state = StateDirectory(Path(sys.argv[1]) / "state")
state.create()

def acknowledge(what):
    os.write(1, f"ACKNOWLEDGE {what}\\n".encode())

def publish(file, data):
    file.write_bytes(data)
    digests = dict(sha256=hashlib.sha256(data).hexdigest(), md5=hashlib.md5(data).hexdigest(), size_bytes=len(data))
    return dict(source=file, **digests)

async def objects():
    with SqliteDatabase.open(state.database, metadata=metadata) as database:
        store = ObjectStore(database, state.objects, clock=SystemClock())
        await store.ensure_bucket("data")
        await store.adopt("data", "model.tar.gz", **publish(state.root / "model.tar.gz", b"model"))
        acknowledge("publication")
        await store.close()

asyncio.run(objects())
create_stream(state.logs, "group", "created")
acknowledge("stream")
SegmentSink(state.logs).append(StreamName("group", "stream"), b"1 line\\n", offset=0)
acknowledge("delivered lines")
writer = SegmentWriter(state.logs / "rotated", segment_bytes=100)
for number in range(5):
    writer.write(b"x" * 60)
acknowledge("full segments")
writer.close()
acknowledge("closed segment")
streams = PutStreams(state.logs, clock=SystemClock())
streams.create("clients", "run")
streams.append("clients", "run", [(5, put_line("event", at_ms=5, ingested_ms=6))])
acknowledge("put events")
streams.append("clients", "run", [(4, put_line("late", at_ms=4, ingested_ms=7))])
acknowledge("late events")
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """The trace of a program that publishes a file and writes logs."""
    root = tmp_path_factory.mktemp("program").resolve()
    recording = Recording(tmp_path_factory.mktemp("recorder"), root=root)
    command = [sys.executable, "-c", PROGRAM, str(root)]
    subprocess.run(command, env=os.environ | recording.variables, check=True, stdout=subprocess.PIPE)
    return recording.trace()


def lost_at(trace: Trace, what: str, wanted: Callable[[str], bool]) -> list[str]:
    (at,) = trace.positions("A", lambda text: text.strip() == f"ACKNOWLEDGE {what}")
    return trace.lost(at, wanted)


def test_a_published_file_is_durable_before_the_only_other_copy_of_it_is_removed(program: Trace) -> None:
    (at,) = program.positions("U", lambda path: path.endswith("/model.tar.gz"))
    assert program.positions("N", is_content)[-1] < at
    assert program.lost(at, is_content) == []
    rows = [each for each in program.positions("W", is_log) if program.positions("N", is_content)[-1] < each < at]
    assert program.is_synced(rows[0], before=at)
    assert program.lost(rows[0], is_content) == []


@pytest.mark.parametrize(
    ("what", "part"),
    [
        ("stream", "/stream.json"),
        ("delivered lines", ".log"),
        ("closed segment", "/rotated/"),
        ("put events", OF_CLIENTS),
        ("late events", OF_CLIENTS),
    ],
)
def test_logs_are_durable_when_that_is_promised(program: Trace, what: str, part: str) -> None:
    def wanted(path: str) -> bool:
        return part in path and ("/rotated/" in path) == (part == "/rotated/")

    assert lost_at(program, what, wanted) == []
    poorer = program.without("fF", lambda path: not is_log(path))
    assert lost_at(poorer, what, wanted) != []


def test_a_full_segment_is_durable_and_the_open_one_has_a_durable_name(program: Trace) -> None:
    lost = lost_at(program, "full segments", lambda path: "/rotated/" in path)
    assert [loss.rpartition("/")[2] for loss in lost] == ["00000005.log"]
    assert lost[0].startswith("bytes of")
