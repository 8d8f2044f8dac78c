"""CloudWatch Logs by boto3 and the AWS CLI: searching the logs of jobs, and listing groups."""

import json
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tidemill.testing import Service

GROUP = "/aws/sagemaker/TrainingJobs"
SCRIPT = """
    import os
    for number in range(40):
        print("ERROR" if number % 10 == 3 else "fine", os.environ["TRAINING_JOB_NAME"], f"loss={number}", flush=True)
"""
SLOW_SCRIPT = """
    import time
    for number in range(30):
        print(f"line {number}", flush=True)
        time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service() as service:
        yield service


@pytest.fixture(scope="module")
def names(service: Service, jobs_of: Any) -> list[str]:
    """Run three jobs, two of them at the same time, and return their names."""
    jobs = jobs_of(service)
    made = [f"logs-{letter}-{uuid.uuid4().hex[:6]}" for letter in "abc"]
    with ThreadPoolExecutor(2) as threads:
        for job in threads.map(lambda name: jobs.run(SCRIPT, name=name), made):
            assert job["TrainingJobStatus"] == "Completed"
    return made


@pytest.fixture(scope="module")
def logs(service: Service) -> Any:
    return service.client("logs")


def events_of(logs: Any, *, page_size: int | None = None, **arguments: Any) -> list[dict[str, Any]]:
    """Return all events that a paginator finds."""
    pages = logs.get_paginator("filter_log_events").paginate(
        logGroupName=GROUP, PaginationConfig={"PageSize": page_size} if page_size else {}, **arguments
    )
    return [event for page in pages for event in page["events"]]


def script_lines(events: list[dict[str, Any]]) -> list[str]:
    return [event["message"] for event in events if "loss=" in event["message"]]


def test_all_events_of_a_group_come_in_the_order_of_time(logs: Any, names: list[str]) -> None:
    events = events_of(logs)
    assert [event["timestamp"] for event in events] == sorted(event["timestamp"] for event in events)
    assert len({event["eventId"] for event in events}) == len(events)
    for name in names:
        own = [event for event in events if event["logStreamName"].startswith(f"{name}/")]
        whole = logs.get_log_events(
            logGroupName=GROUP, logStreamName=own[0]["logStreamName"], startFromHead=True, limit=10_000
        )
        assert [event["message"] for event in own] == [event["message"] for event in whole["events"]]
    assert len(script_lines(events)) == 120
    assert events_of(logs, page_size=7) == events


def test_streams_times_and_terms_bound_a_search(logs: Any, names: list[str]) -> None:
    events = events_of(logs)
    prefixed = events_of(logs, logStreamNamePrefix=f"{names[1]}/")
    assert prefixed == [event for event in events if event["logStreamName"].startswith(f"{names[1]}/")]
    streams = sorted({event["logStreamName"] for event in events if not event["logStreamName"].startswith(names[1])})
    assert events_of(logs, logStreamNames=streams) == [e for e in events if e["logStreamName"] in streams]
    first, last = events[10]["timestamp"], events[-10]["timestamp"]
    assert events_of(logs, startTime=first, endTime=last) == [e for e in events if first <= e["timestamp"] <= last]
    errors = events_of(logs, filterPattern=f'ERROR "{names[2]}" -"loss=13"', interleaved=True, page_size=1)
    assert script_lines(errors) == [f"ERROR {names[2]} loss={number}" for number in (3, 23, 33)]
    identifier = f"arn:aws:logs:us-west-2:000000000000:log-group:{GROUP}"
    by_arn = logs.filter_log_events(logGroupIdentifier=identifier, filterPattern="?ERROR ?nothing", unmask=True)
    assert len(script_lines(by_arn["events"])) == 12
    assert "nextToken" not in by_arn


def test_a_log_is_followed_as_the_cli_s_tail_follows_it(logs: Any, service: Service, jobs_of: Any) -> None:
    jobs = jobs_of(service)
    name = jobs.create(SLOW_SCRIPT)
    shown: dict[str, str] = {}
    arguments: dict[str, Any] = {"logStreamNamePrefix": f"{name}/", "startTime": int(time.time() * 1000) - 60_000}
    ended = False
    while True:
        try:
            events = events_of(logs, **arguments)
        except ClientError as error:  # the first line of the first job creates the group
            assert error.response["Error"]["Code"] == "ResourceNotFoundException"
            events = []
        for event in events:
            assert shown.setdefault(event["eventId"], event["message"]) == event["message"]
            arguments["startTime"] = max(arguments["startTime"], event["timestamp"])
        if ended:
            break
        ended = jobs.describe(name)["TrainingJobStatus"] == "Completed"
    assert [line for line in shown.values() if line.startswith("line ")] == [f"line {number}" for number in range(30)]


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        ({"logGroupName": "/none"}, "ResourceNotFoundException", "log group does not exist"),
        ({}, "InvalidParameterException", "Give either logGroupName or logGroupIdentifier"),
        ({"logGroupName": GROUP, "logGroupIdentifier": GROUP}, "InvalidParameterException", "not both"),
        (
            {"logGroupIdentifier": f"arn:aws:logs:us-west-2:111111111111:log-group:{GROUP}"},
            "ResourceNotFoundException",
            "log group does not exist",
        ),
        ({"logGroupName": GROUP, "logStreamNames": ["none"]}, "ResourceNotFoundException", "log stream does not exist"),
        (
            {"logGroupName": GROUP, "logStreamNames": ["a"], "logStreamNamePrefix": "a"},
            "InvalidParameterException",
            "cannot be combined",
        ),
        ({"logGroupName": GROUP, "filterPattern": "{ $.a = 1 }"}, "InvalidParameterException", "JSON pattern"),
        ({"logGroupName": GROUP, "startTime": 2, "endTime": 1}, "InvalidParameterException", "is before startTime"),
        ({"logGroupName": GROUP, "startFromHead": False}, "InvalidParameterException", "startFromHead=False"),
        ({"logGroupName": GROUP, "nextToken": "mine"}, "InvalidParameterException", "nextToken is invalid"),
        ({"logGroupName": GROUP, "limit": 10_001}, "InvalidParameterException", "limit"),
    ],
)
def test_searches_that_cannot_be_honored_are_refused(
    logs: Any, names: list[str], arguments: dict[str, Any], code: str, reason: str
) -> None:
    with pytest.raises(ClientError) as refused:
        logs.filter_log_events(**arguments)
    assert refused.value.response["Error"]["Code"] == code
    assert reason in refused.value.response["Error"]["Message"]


def test_groups_are_listed_page_by_page_and_by_name(
    logs: Any, names: list[str], service: Service, wait_until: Callable[..., Any]
) -> None:
    endpoints = [f"/aws/sagemaker/Endpoints/{name}" for name in deploy_broken(service, count=2)]
    expected = sorted([GROUP, *endpoints])
    wait_until(
        lambda: [group["logGroupName"] for group in logs.describe_log_groups()["logGroups"]] == expected,
        logs.describe_log_groups,
    )
    pages = logs.get_paginator("describe_log_groups").paginate(PaginationConfig={"PageSize": 1})
    assert [group["logGroupName"] for page in pages for group in page["logGroups"]] == expected
    (training,) = logs.describe_log_groups(logGroupNamePrefix="/aws/sagemaker/Train")["logGroups"]
    assert training["arn"] == f"arn:aws:logs:us-west-2:000000000000:log-group:{GROUP}:*"
    assert training["logGroupArn"] == training["arn"].removesuffix(":*")
    assert training["storedBytes"] > 1000
    assert abs(training["creationTime"] / 1000 - time.time()) < 3600
    (short,) = logs.describe_log_groups(logGroupNamePattern="ningJ")["logGroups"]
    assert set(short) == {"logGroupName", "creationTime", "arn"}
    by_arn = logs.describe_log_groups(logGroupIdentifiers=[training["logGroupArn"], "/none"])["logGroups"]
    assert by_arn == [training]
    assert logs.describe_log_groups(logGroupClass="INFREQUENT_ACCESS")["logGroups"] == []
    assert len(logs.describe_log_groups(logGroupClass="STANDARD", includeLinkedAccounts=False)["logGroups"]) == 3
    for arguments in (
        {"includeLinkedAccounts": True},
        {"logGroupNamePrefix": "a", "logGroupNamePattern": "a"},
        {"logGroupIdentifiers": [GROUP], "logGroupNamePrefix": "a"},
    ):
        with pytest.raises(ClientError) as refused:
            logs.describe_log_groups(**arguments)
        assert refused.value.response["Error"]["Code"] == "InvalidParameterException"


def deploy_broken(service: Service, *, count: int) -> list[str]:
    """Create endpoints whose model is not an archive: each creates a log group and fails at once."""
    sagemaker, bucket = service.client("sagemaker"), "sagemaker-us-west-2-000000000000"
    service.client("s3").put_object(Bucket=bucket, Key="broken", Body=b"no archive")
    container = {"Image": "tensorflow-inference:2.21.0-cpu", "ModelDataUrl": f"s3://{bucket}/broken"}
    role = "arn:aws:iam::000000000000:role/SageMakerRole"
    sagemaker.create_model(ModelName="broken", ExecutionRoleArn=role, PrimaryContainer=container)
    variant = {"VariantName": "v", "ModelName": "broken", "InstanceType": "local", "InitialInstanceCount": 1}
    sagemaker.create_endpoint_config(EndpointConfigName="broken", ProductionVariants=[variant])
    names = [f"broken-{number}" for number in range(count)]
    for name in names:
        sagemaker.create_endpoint(EndpointName=name, EndpointConfigName="broken")
    return names


def test_the_aws_cli_searches_lists_writes_and_queries(
    names: list[str], logs: Any, service: Service, root: Path, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **service.environment}

    def said(*arguments: str) -> str:
        command = [str(root / ".venvs/peers/bin/aws"), "logs", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def aws(*arguments: str) -> Any:
        return json.loads(said(*arguments))

    found = aws(
        "filter-log-events", "--log-group-name", GROUP, "--log-stream-name-prefix", names[0],
        "--filter-pattern", 'ERROR -"loss=3"', "--page-size", "2",
    )["events"]  # fmt: skip
    # The term is found anywhere in a line, so lines with loss=33 match as well.
    assert script_lines(found) == [f"ERROR {names[0]} loss={number}" for number in (13, 23)]
    limited = aws("filter-log-events", "--log-group-name", GROUP, "--max-items", "5")["events"]
    assert [event["eventId"] for event in limited] == [event["eventId"] for event in events_of(logs)[:5]]
    groups = aws("describe-log-groups", "--log-group-name-prefix", "/aws/sagemaker/Tr")["logGroups"]
    assert [group["logGroupName"] for group in groups] == [GROUP]
    # What the CLI puts is found, and queried together with the logs of jobs.
    now_s = int(time.time())
    said("create-log-group", "--log-group-name", "/team")
    said("create-log-stream", "--log-group-name", "/team", "--log-stream-name", "run")
    events = json.dumps([{"timestamp": now_s * 1000, "message": "ERROR of the team\nloss=100"}])
    put = ("put-log-events", "--log-group-name", "/team", "--log-stream-name", "run", "--log-events", events)
    assert "rejectedLogEventsInfo" not in aws(*put)
    (event,) = aws("filter-log-events", "--log-group-name", "/team", "--start-time", str(now_s * 1000))["events"]
    assert event["message"] == "ERROR of the team\nloss=100"
    query = aws(
        "start-query", "--log-group-names", GROUP, "/team",
        "--start-time", str(now_s - 3600), "--end-time", str(now_s + 60),
        "--query-string", "filter @message like /ERROR/ | parse 'loss=*' as loss | stats count(*), max(loss) by @log",
    )["queryId"]  # fmt: skip
    done = wait_until(lambda: complete(aws("get-query-results", "--query-id", query)), lambda: query)
    assert [{each["field"]: each["value"] for each in row} for row in done["results"]] == [
        {"@log": f"000000000000:{GROUP}", "count(*)": "12", "max(loss)": "33"},
        {"@log": "000000000000:/team", "count(*)": "1", "max(loss)": "100"},
    ]


def complete(reply: dict[str, Any]) -> dict[str, Any] | None:
    return reply if reply["status"] == "Complete" else None
