"""Traces of requests, jobs and scripts, as a collector gets them."""

import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tidemill.core.spans import Span, TraceContext
from tidemill.server.tracing import OtlpSpans
from tidemill.testing import Service

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SCRIPT = "import os\nprint('PARENT', os.environ.get('TRACEPARENT', 'none'))"


class Collector:
    """A receiver of OTLP over HTTP on loopback."""

    def __init__(self) -> None:
        collector = self
        self.spans: list[Any] = []
        self.resources: list[Mapping[str, str]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert (self.path, self.headers["content-type"]) == ("/v1/traces", "application/x-protobuf")
                request = ExportTraceServiceRequest()
                body = self.rfile.read(int(self.headers["content-length"]))
                request.ParseFromString(body)
                for group in request.resource_spans:
                    collector.resources.append(
                        {each.key: each.value.string_value for each in group.resource.attributes}
                    )
                    for scope in group.scope_spans:
                        collector.spans.extend(scope.spans)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def of_trace(self, trace_id: str) -> list[Any]:
        return [span for span in list(self.spans) if span.trace_id.hex() == trace_id]


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.server.shutdown()
    collector.server.server_close()


@pytest.fixture(scope="module")
def service(collector: Collector) -> Iterator[Service]:
    settings = {"otlp_endpoint": collector.url, "stop_grace_s": 2}
    with Service(settings=settings, variables={"OTEL_BSP_SCHEDULE_DELAY": "100"}) as service:
        yield service


def with_header(client: Any, operation: str, traceparent: str) -> None:
    def add(request: Any, **_: Any) -> None:
        request.headers["traceparent"] = traceparent

    client.meta.events.register(f"before-sign.sagemaker.{operation}", add)


def test_a_job_is_one_trace_from_its_request_to_its_script(
    service: Service, collector: Collector, jobs_of: Any, wait_until: Callable[..., Any]
) -> None:
    jobs = jobs_of(service)
    with_header(jobs.sagemaker, "CreateTrainingJob", f"00-{TRACE}-{CALLER}-01")
    name = jobs.create(SCRIPT)
    assert jobs.wait(name)["TrainingJobStatus"] == "Completed"
    wait_until(lambda: any(span.name == "training-job" for span in collector.of_trace(TRACE)), "the span of the job")
    by_name = {span.name: span for span in collector.of_trace(TRACE)}
    request, job = by_name["sagemaker.CreateTrainingJob"], by_name["training-job"]
    assert request.parent_span_id.hex() == CALLER
    assert job.parent_span_id == request.span_id
    assert (
        attributes(request).items()
        >= {
            "rpc.system": "aws-api",
            "rpc.service": "sagemaker",
            "rpc.method": "CreateTrainingJob",
            "http.response.status_code": 200,
        }.items()
    )
    assert attributes(job).items() >= {"tidemill.job.name": name, "tidemill.job.status": "Completed"}.items()
    phases = [by_name[phase] for phase in ("prepare", "train", "upload")]
    assert {phase.parent_span_id for phase in phases} == {job.span_id}
    for earlier, later in itertools.pairwise(phases):
        assert earlier.end_time_unix_nano <= later.start_time_unix_nano
    assert job.start_time_unix_nano <= phases[0].start_time_unix_nano
    assert phases[-1].end_time_unix_nano <= job.end_time_unix_nano
    assert f"PARENT 00-{TRACE}-{job.span_id.hex()}-01" in jobs.log(name)
    assert collector.resources[0]["service.name"] == "tidemill"


def test_malformed_and_unsampled_headers_are_no_part_of_a_trace(
    service: Service, collector: Collector, jobs_of: Any, wait_until: Callable[..., Any]
) -> None:
    jobs = jobs_of(service)
    unsampled = "5" * 32
    with_header(jobs.sagemaker, "ListTrainingJobs", f"00-{unsampled}-{CALLER}-00")
    jobs.sagemaker.list_training_jobs()
    with_header(jobs.sagemaker, "ListModels", f"00-{'0' * 32}-{CALLER}-01")
    with_header(jobs.sagemaker, "ListEndpoints", "not a traceparent")
    jobs.sagemaker.list_models()
    jobs.sagemaker.list_endpoints()
    failed = jobs.create("raise SystemExit('no')", Environment={"TRACEPARENT": "my own"})
    jobs.wait(failed)

    def seen(name: str) -> list[Any]:
        return [span for span in list(collector.spans) if span.name == name]

    wait_until(lambda: any(attributes(each)["tidemill.job.name"] == failed for each in seen("training-job")), "the job")
    assert collector.of_trace(unsampled) == []
    for name in ("sagemaker.ListModels", "sagemaker.ListEndpoints"):
        (span,) = seen(name)
        assert (span.parent_span_id, span.trace_id.strip(b"\0") != b"") == (b"", True)
    (job,) = (each for each in seen("training-job") if attributes(each)["tidemill.job.name"] == failed)
    assert (job.status.code, "ExitCode 1" in job.status.message) == (2, True)


def test_a_collector_that_is_gone_keeps_no_job_and_no_end(jobs_of: Any) -> None:
    variables = {"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    with Service(settings={"otlp_endpoint": "http://127.0.0.1:9", "stop_grace_s": 2}, variables=variables) as service:
        jobs = jobs_of(service)
        assert jobs.run(SCRIPT)["TrainingJobStatus"] == "Completed"


def test_without_the_setting_nothing_of_opentelemetry_is_imported() -> None:
    program = (
        "import sys\n"
        "import tidemill.server.app, tidemill.server.run, tidemill.server.serving\n"
        "from types import SimpleNamespace as S\n"
        "from tidemill.server.tracing import open_tracing\n"
        "assert open_tracing(S(settings=S(otlp_endpoint=None))) is None\n"
        "assert not [each for each in sys.modules if each.partition('.')[0] in ('opentelemetry', 'requests')]\n"
        "from tidemill.errors import ConfigurationError\n"
        "sys.modules['opentelemetry'] = None\n"
        "try:\n"
        "    open_tracing(S(settings=S(otlp_endpoint='http://127.0.0.1:9', region='us-west-2')))\n"
        "except ConfigurationError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "pip install 'tidemill[otel]'" in done.stdout


def test_a_collector_that_does_not_answer_holds_up_no_end_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.server.tracing._LAST_BATCHES_S", 0.01)
    spans, answered, ended = OtlpSpans("http://127.0.0.1:1/v1/traces", region="us-west-2"), threading.Event(), []
    shutdown = spans._processor.shutdown
    monkeypatch.setattr(spans._processor, "shutdown", lambda: (answered.wait(30), shutdown(), ended.append(True)))
    spans.close()
    assert not ended
    answered.set()


def test_a_span_that_cannot_be_converted_fails_nothing() -> None:
    spans = OtlpSpans("http://127.0.0.1:1/v1/traces", region="us-west-2")
    spans.note(Span(name="broken", context=TraceContext("no trace", "id"), parent=None, begin_ns=1, end_ns=2))
    spans.close()
