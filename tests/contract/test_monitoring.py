"""What monitors read of a service: who may, what they find, and the examples of the documentation."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tidemill.server.client import own_client
from tidemill.testing import Service

EXAMPLES = Path(__file__).parents[2] / "docs/how-to/monitoring"
_NAME = re.compile(r"\b(?:tidemill|process)_[a-z_]+")


def asked(service: Service, authorization: str | None, path: str = "/_tidemill/metrics") -> tuple[int, str]:
    headers = {} if authorization is None else {"Authorization": authorization}
    request = urllib.request.Request(f"{service.url}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture(scope="module")
def tokens(tidemill_service: Service) -> Any:
    """Return a client of tidemill's own operations."""
    return own_client(tidemill_service.boto3_session(), tidemill_service.url)


@pytest.fixture(scope="module")
def scrape(tidemill_service: Service, tokens: Any) -> Callable[[], Mapping[str, Metric]]:
    """Return a function that reads all metrics, by their names without suffix."""
    token = tokens.create_metrics_token(Name="scrape")["Token"]

    def read() -> Mapping[str, Metric]:
        status, text = asked(tidemill_service, f"Bearer {token}")
        assert status == 200, text
        families = list(text_string_to_metric_families(text))
        assert len({family.name for family in families}) == len(families)
        return {family.name: family for family in families}

    return read


def value(metric: Metric, **labels: str) -> float:
    """Return the sum of the samples with these labels, without buckets and sums of histograms."""
    return sum(
        sample.value
        for sample in metric.samples
        if not sample.name.endswith(("_bucket", "_sum")) and labels.items() <= sample.labels.items()
    )


def test_only_a_token_that_is_valid_now_reads_the_metrics(tidemill_service: Service, tokens: Any) -> None:
    token = tokens.create_metrics_token(Name="prometheus")["Token"]
    assert [each["Name"] for each in tokens.list_metrics_tokens()["Tokens"] if each["Name"] == "prometheus"]
    assert asked(tidemill_service, f"Bearer {token}")[0] == 200
    for refused in (None, "", "Bearer", "Bearer wrong", f"Bearer {token}x", f"Basic {token}", token):
        status, text = asked(tidemill_service, refused)
        assert (status, "tidemill_" in text) == (401, False), refused
    with pytest.raises(ClientError, match="already a token 'prometheus'"):
        tokens.create_metrics_token(Name="prometheus")
    for path in Path(tidemill_service.state_dir).glob("state.db*"):
        assert token.encode() not in path.read_bytes()
    tokens.delete_metrics_token(Name="prometheus")
    assert asked(tidemill_service, f"Bearer {token}")[0] == 401
    with pytest.raises(ClientError, match="no token 'prometheus'"):
        tokens.delete_metrics_token(Name="prometheus")


def test_tokens_are_for_the_owner_alone(tidemill_service: Service) -> None:
    key = tidemill_service.client("iam").create_access_key(UserName="metrics-reader")["AccessKey"]
    session = boto3.Session(key["AccessKeyId"], key["SecretAccessKey"], region_name="us-west-2")
    user = own_client(session, tidemill_service.url)
    for operation in ("create_metrics_token", "list_metrics_tokens", "delete_metrics_token"):
        with pytest.raises(ClientError, match="is for the owner of the service"):
            getattr(user, operation)(**({} if operation.startswith("list") else {"Name": "mine"}))


def test_metrics_follow_requests_and_jobs(
    scrape: Callable[[], Mapping[str, Metric]], tidemill_service: Service, jobs: Any
) -> None:
    before = scrape()
    name = jobs.create("print('hello')")
    assert jobs.wait(name)["TrainingJobStatus"] == "Completed"
    with pytest.raises(ClientError):
        jobs.sagemaker.describe_training_job(TrainingJobName="no-such-job")
    urllib.request.urlopen(f"{tidemill_service.url}/healthz", timeout=60).close()
    headers = {"X-Amz-Target": "SageMaker.Evil", "Content-Type": "application/x-amz-json-1.1"}
    evil = urllib.request.Request(f"{tidemill_service.url}/", b"{}", headers)
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(evil, timeout=60)
    after = scrape()

    def grown(family: str, **labels: str) -> float:
        return value(after[family], **labels) - value(before[family], **labels)

    create = {"service": "sagemaker", "operation": "CreateTrainingJob"}
    assert grown("tidemill_requests", **create, status="200") == 1
    assert grown("tidemill_request_duration_seconds", **create) == 1
    assert grown("tidemill_requests", service="sagemaker", operation="DescribeTrainingJob", status="400") == 1
    assert grown("tidemill_jobs", kind="training-job", status="Completed") == 1
    assert grown("tidemill_database_commit_duration_seconds") > 0
    assert grown("tidemill_database_writes") >= grown("tidemill_database_commit_duration_seconds")
    assert grown("process_cpu_seconds") > 0
    assert value(after["tidemill_job_instances"]) <= value(after["tidemill_job_instances_max"])
    assert value(after["tidemill_queue_jobs"]) == 0
    assert 0 < value(after["tidemill_disk_free_bytes"]) < value(after["tidemill_disk_size_bytes"])
    operations = {sample.labels["operation"] for sample in after["tidemill_requests"].samples}
    assert "Evil" not in operations


def test_the_dashboard_and_the_alerts_name_metrics_that_exist(scrape: Callable[[], Mapping[str, Metric]]) -> None:
    families = scrape()
    known = {sample.name for family in families.values() for sample in family.samples}
    for family in families.values():  # those without a sample yet
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        known |= {family.name + suffix for suffix in suffixes}
    dashboard = json.loads((EXAMPLES / "dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    alerts = [line for line in (EXAMPLES / "alerts.yml").read_text().splitlines() if line.strip().startswith("expr:")]
    assert (len(queries) > 10, len(alerts) > 5) == (True, True)
    for text in (*queries, *alerts):
        names = set(_NAME.findall(text))
        assert names, text
        assert names <= known, text
