"""InvokeEndpoint: what the model's server and the client get, and the errors if the server does not answer."""

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tidemill.core.hosting import EndpointStatus
from tidemill.wire.observer import RequestObserver

CONTAINER = {"Image": "tensorflow-inference:2.21.0-cpu", "ModelDataUrl": "s3://data/model.tar.gz"}
ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"


@pytest.fixture
def endpoint(sagemaker: Any, stage: Any) -> str:
    """Return the name of an endpoint of one instance that is InService."""
    create(sagemaker, "digits", instances=1)
    stage.bring_up("digits")
    return "digits"


def create(sagemaker: Any, name: str, *, instances: int) -> None:
    sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=CONTAINER)
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": name,
        "InstanceType": "local",
        "InitialInstanceCount": instances,
    }
    sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)


def echo(request: Any, body: bytes) -> tuple[int, dict[str, str], bytes]:
    return 200, {"content-type": "application/json"}, body


def test_body_and_headers_reach_the_model_and_its_answer_the_client(runtime, endpoint, serve_model):
    seen = []

    def answer(request: Any, body: bytes) -> tuple[int, dict[str, str], bytes]:
        seen.append((request.path, request.headers, body))
        headers = {"content-type": "text/csv; charset=utf-8", "x-amzn-sagemaker-custom-attributes": "trace=2"}
        return 200, headers, b"\x00answer\xff"

    serve_model(answer)
    reply = runtime.invoke_endpoint(
        EndpointName=endpoint,
        Body=b"\x00question\xff",
        ContentType="application/x-npy",
        Accept="text/csv",
        CustomAttributes="trace=1",
    )
    assert reply["Body"].read() == b"\x00answer\xff"
    assert reply["ContentType"] == "text/csv; charset=utf-8"
    assert reply["CustomAttributes"] == "trace=2"
    assert reply["InvokedProductionVariant"] == "AllTraffic"
    ((path, headers, body),) = seen
    assert (path, body) == ("/invocations", b"\x00question\xff")
    assert headers["content-type"] == "application/x-npy"
    assert headers["accept"] == "text/csv"
    assert headers["x-amzn-sagemaker-custom-attributes"] == "trace=1"


def test_an_answer_without_headers_and_a_request_without_a_body_are_passed_on(runtime, endpoint, serve_model):
    serve_model(lambda request, body: (200, {}, b"" if body else b"empty"))
    reply = runtime.invoke_endpoint(EndpointName=endpoint, Body=b"")
    assert reply["Body"].read() == b"empty"
    assert reply["ContentType"] == "application/octet-stream"
    assert "CustomAttributes" not in reply


def test_requests_one_after_another_are_all_answered(runtime, endpoint, serve_model):
    serve_model(echo)
    for number in range(5):
        body = b"%d" % number * 1000
        assert runtime.invoke_endpoint(EndpointName=endpoint, Body=body)["Body"].read() == body


def test_requests_alternate_between_the_instances_of_an_endpoint(runtime, sagemaker, stage, serve_model):
    create(sagemaker, "wide", instances=3)
    stage.bring_up("wide")
    for index, instance in enumerate(stage.instances("wide")):
        serve_model(lambda request, body, index=index: (200, {}, b"%d" % index), instance=instance)
    answers = [runtime.invoke_endpoint(EndpointName="wide", Body=b"x")["Body"].read() for _ in range(6)]
    assert sorted(answers[:3]) == [b"0", b"1", b"2"]
    assert answers[3:] == answers[:3]


def test_an_instance_that_cannot_be_reached_is_passed_over(runtime, sagemaker, stage, serve_model):
    create(sagemaker, "wide", instances=2)
    stage.bring_up("wide")
    serve_model(lambda request, body: (200, {}, b"1"), instance=stage.instances("wide")[1])
    answers = [runtime.invoke_endpoint(EndpointName="wide", Body=b"x")["Body"].read() for _ in range(4)]
    assert answers == [b"1"] * 4


def test_an_answer_that_a_model_returns_whole_is_streamed_in_parts(runtime, endpoint, serve_model):
    serve_model(lambda request, body: (200, {"content-type": "text/plain"}, body * 70_000))
    reply = runtime.invoke_endpoint_with_response_stream(EndpointName=endpoint, Body=b"ab", ContentType="text/plain")
    assert (reply["ContentType"], reply["InvokedProductionVariant"]) == ("text/plain", "AllTraffic")
    parts = [event["PayloadPart"]["Bytes"] for event in reply["Body"]]
    assert b"".join(parts) == b"ab" * 70_000
    assert len(parts) == 3


def test_a_streamed_answer_that_is_an_error_is_a_model_error(runtime, endpoint, serve_model):
    serve_model(lambda request, body: (500, {}, b"no such signature"))
    with pytest.raises(runtime.exceptions.ModelError) as caught:
        runtime.invoke_endpoint_with_response_stream(EndpointName=endpoint, Body=b"x")
    assert caught.value.response["OriginalMessage"] == "no such signature"


def test_the_variant_that_there_is_may_be_named_and_no_other(runtime, endpoint, serve_model, refusal):
    serve_model(echo)
    reply = runtime.invoke_endpoint(EndpointName=endpoint, Body=b"x", TargetVariant="AllTraffic")
    assert reply["InvokedProductionVariant"] == "AllTraffic"
    assert reply["Body"].read() == b"x"
    status, code, message = refusal(runtime.invoke_endpoint, EndpointName=endpoint, Body=b"x", TargetVariant="canary")
    assert (status, code) == (400, "ValidationError")
    assert "'canary'" in message
    assert "'AllTraffic'" in message


def test_an_endpoint_that_is_not_there_is_not_found(runtime, refusal):
    status, code, message = refusal(runtime.invoke_endpoint, EndpointName="none", Body=b"x")
    assert (status, code) == (400, "ValidationError")
    assert message == "Endpoint none of account 000000000000 not found."


@pytest.mark.parametrize("state", [each for each in EndpointStatus if each not in ("InService", "Updating")])
def test_an_endpoint_that_is_not_in_service_accepts_no_requests(runtime, endpoint, stage, refusal, state):
    stage.change_endpoint(endpoint, lambda now: replace(now, status=state))
    status, code, message = refusal(runtime.invoke_endpoint, EndpointName=endpoint, Body=b"x")
    assert (status, code) == (400, "ValidationError")
    assert f"is {state}, not InService" in message


@pytest.mark.parametrize("status", [400, 415, 500, 503])
def test_an_error_of_the_model_is_a_model_error_with_its_status_and_text(runtime, endpoint, serve_model, status):
    serve_model(lambda request, body: (status, {"content-type": "text/plain"}, b"no such signature \xff"))
    with pytest.raises(runtime.exceptions.ModelError) as caught:
        runtime.invoke_endpoint(EndpointName=endpoint, Body=b"x")
    response = caught.value.response
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 424
    assert response["OriginalStatusCode"] == status
    assert response["OriginalMessage"] == "no such signature \ufffd"
    assert response["LogStreamArn"].endswith(":log-group:/aws/sagemaker/Endpoints/digits")
    side = "client" if status < 500 else "server"
    wanted = f'Received {side} error ({status}) from primary with message "no such signature'
    assert response["Error"]["Message"].startswith(wanted)


def test_a_model_that_dies_of_a_request_is_a_model_error(runtime, endpoint, serve_model, refusal):
    seen = []

    serve_model(lambda request, body: seen.append(body))
    status, code, message = refusal(runtime.invoke_endpoint, EndpointName=endpoint, Body=b"poison")
    assert (status, code) == (424, "ModelError")
    assert "does not answer" in message
    assert seen == [b"poison"]  # not sent again


def test_a_model_that_takes_too_long_is_a_model_error(runtime, endpoint, stage, door, serve_model, refusal):
    released = threading.Event()
    serve_model(lambda request, body: (200, {}, b"late" if released.wait(30) else b""))
    door.gateway = stage.gateway(timeout_s=0.05)
    status, code, message = refusal(runtime.invoke_endpoint, EndpointName=endpoint, Body=b"x")
    released.set()
    assert (status, code) == (424, "ModelError")
    assert "the model did not answer within 0.05 s" in message


def test_a_server_that_never_comes_up_is_a_model_error(runtime, endpoint, stage, door, refusal):
    door.gateway = stage.gateway(timeout_s=0.05)
    status, code, message = refusal(runtime.invoke_endpoint, EndpointName=endpoint, Body=b"x")
    assert (status, code) == (424, "ModelError")
    assert "did not answer within" in message


def test_keys_without_the_right_to_invoke_are_refused(restricted, endpoint, refusal):
    status, code, message = refusal(restricted("sagemaker-runtime").invoke_endpoint, EndpointName=endpoint, Body=b"x")
    assert (status, code) == (403, "AccessDeniedException")
    assert "sagemaker:InvokeEndpoint" in message


def test_requests_are_metrics_of_the_variant_over_time(runtime, cloudwatch, endpoint, stage, serve_model):
    statuses = iter([200] * 8 + [400, 500])
    serve_model(lambda request, body: (next(statuses), {}, b""))
    for _ in range(8):
        runtime.invoke_endpoint(EndpointName=endpoint, Body=b"x")
    stage.clock.ms += 60_000
    for _ in range(2):
        with pytest.raises(runtime.exceptions.ModelError):
            runtime.invoke_endpoint(EndpointName=endpoint, Body=b"x")
    dimensions = [
        {"Name": "EndpointName", "Value": endpoint},
        {"Name": "VariantName", "Value": "AllTraffic"},
    ]

    def query(name: str, statistic: str) -> dict[str, Any]:
        metric = {"Namespace": "AWS/SageMaker", "MetricName": name, "Dimensions": dimensions}
        return {
            "Id": f"{name[0].lower()}{name[1:]}{statistic}",
            "MetricStat": {"Metric": metric, "Period": 60, "Stat": statistic},
        }

    asked = [
        *(query("Invocations", "Sum"), query("Invocations", "SampleCount"), query("Invocation4XXErrors", "Sum")),
        *(query("Invocation5XXErrors", "Average"), query("InvocationModelErrors", "Sum")),
        *(query("ModelLatency", "Maximum"), query("ModelLatency", "p50"), query("ModelLatency", "SampleCount")),
    ]
    found = cloudwatch.get_metric_data(
        MetricDataQueries=asked,
        StartTime=stage.clock.ms / 1000 - 300,
        EndTime=stage.clock.ms / 1000 + 60,
        ScanBy="TimestampAscending",
    )["MetricDataResults"]
    values = [each["Values"] for each in found]
    assert values[:5] == [[8, 2], [8, 2], [0, 1], [0, 0.5], [0, 2]]
    (longest, _), (median, _), counts = values[5:]
    assert 0 < median <= longest
    assert counts == [8, 2]
    (point,) = cloudwatch.get_metric_statistics(
        Namespace="AWS/SageMaker",
        MetricName="ModelLatency",
        Dimensions=dimensions,
        StartTime=stage.clock.ms / 1000 - 300,
        EndTime=stage.clock.ms / 1000 - 30,
        Period=300,
        Statistics=["SampleCount"],
    )["Datapoints"]
    assert (point["SampleCount"], point["Unit"]) == (8, "Microseconds")
    listed = cloudwatch.list_metrics(Namespace="AWS/SageMaker", MetricName="Invocations")["Metrics"]
    assert [each["Dimensions"] for each in listed] == [dimensions]


def test_a_traced_request_to_a_model_is_a_span_that_its_server_gets_as_parent(
    runtime, endpoint, serve_model, door, wait_until
):
    noted, seen = [], []
    spans = SimpleNamespace(note=noted.append)
    door.gateway._observer = RequestObserver(spans)
    door.gateway._handlers["sagemaker-runtime"]["InvokeEndpoint"].__self__._spans = spans

    def answer(request: Any, body: bytes) -> tuple[int, dict[str, str], bytes]:
        seen.append(request.headers["traceparent"])
        return (200, {}, body) if body == b"good" else (500, {}, b"broken")

    serve_model(answer)
    runtime.invoke_endpoint(EndpointName="digits", Body=b"good")
    with pytest.raises(ClientError, match="broken"):
        runtime.invoke_endpoint(EndpointName="digits", Body=b"bad")
    wait_until(lambda: len(noted) == 4)
    model, request, failed, _ = noted
    assert (model.name, request.name) == ("invoke model", "sagemaker-runtime.InvokeEndpoint")
    assert model.parent == request.context
    assert seen == [model.context.traceparent, failed.context.traceparent]
    assert model.attributes == {
        "tidemill.endpoint": "digits",
        "tidemill.variant": "AllTraffic",
        "http.response.status_code": 200,
    }
    assert (model.failure, failed.failure) == ("", "HTTP status 500")
