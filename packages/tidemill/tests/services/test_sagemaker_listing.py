"""The listings of SageMaker by boto3: members, order, filters, pages and their tokens."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore import xform_name

from tidemill.control.hosting import ENDPOINT_CONFIG, MODEL
from tidemill.control.jobs import TRAINING, TRANSFORM
from tidemill.control.resources import endpoint_record, resource_record
from tidemill.core.compatibility.nothing import EMPTY_LISTS
from tidemill.core.hosting import Endpoint, EndpointStatus, Resource
from tidemill.core.training import JobStatus, SecondaryStatus, TrainingJob
from tidemill.core.transform import TransformJob
from tidemill.store.records.base import Record

# Operation, member of the reply, and member of an item with its name.
LISTINGS = [
    ("list_training_jobs", "TrainingJobSummaries", "TrainingJobName"),
    ("list_models", "Models", "ModelName"),
    ("list_endpoint_configs", "EndpointConfigs", "EndpointConfigName"),
    ("list_endpoints", "Endpoints", "EndpointName"),
    ("list_transform_jobs", "TransformJobSummaries", "TransformJobName"),
]
WITH_STATUS = [LISTINGS[0], *LISTINGS[3:]]
COUNT = 13
START_MS = 1_700_000_000_000


def job(name: str, at_ms: int) -> Record:
    made = TrainingJob(name=name, arn=f"arn:{name}", job_id="0", request={}, created_ms=at_ms, log_streams=())
    job = made.enter(SecondaryStatus.STARTING, at_ms=at_ms, message="")
    if at_ms // 1000 % 3 == 0:
        job = job.enter(SecondaryStatus.FAILED, at_ms=at_ms, message="")
    return TRAINING.write(job)


def transform_job(name: str, at_ms: int) -> Record:
    made = TransformJob(
        name=name, arn=f"arn:{name}", job_id="0", request={}, model={}, created_ms=at_ms, log_streams=()
    )
    if at_ms // 1000 % 3 == 0:
        made = made.decide(JobStatus.FAILED, failure_reason="no memory").end(at_ms=at_ms)
    return TRANSFORM.write(made)


def endpoint(name: str, at_ms: int) -> Record:
    status = EndpointStatus.FAILED if at_ms // 1000 % 3 == 0 else EndpointStatus.IN_SERVICE
    return endpoint_record(Endpoint(name=name, arn=f"arn:{name}", endpoint_id="0", created_ms=at_ms, status=status))


def resource(kind: str) -> Callable[[str, int], Record]:
    return lambda name, at_ms: resource_record(
        kind, Resource(name=name, arn=f"arn:{name}", request={}, created_ms=at_ms)
    )


MAKERS = dict(
    zip(
        (each[0] for each in LISTINGS),
        (job, resource(MODEL), resource(ENDPOINT_CONFIG), endpoint, transform_job),
        strict=True,
    )
)


@pytest.fixture(params=LISTINGS, ids=lambda listing: listing[0])
def listing(request: pytest.FixtureRequest, sagemaker: Any, stage: Any) -> Any:
    """Return a listing of 13 resources, whose names are not in the order of their creation."""
    operation, member, name = request.param
    make = MAKERS[operation]
    names = [f"{'even' if number % 2 == 0 else 'odd'}-{number:02}" for number in range(COUNT)]
    rows = [make(each, START_MS + 1000 * number) for number, each in enumerate(names)]

    def insert(transaction: Any) -> None:
        for row in rows:
            transaction.insert(row)

    asyncio.run(stage.records.change(insert))
    return Listing(sagemaker, operation, member, name, names)


class Listing:
    """One listing, and its names in the order of creation."""

    def __init__(self, client: Any, operation: str, member: str, name: str, names: list[str]) -> None:
        self.operation = operation
        self.call = getattr(client, operation)
        self.names = names
        self._client = client
        self._member = member
        self.name = name

    def items(self, reply: dict[str, Any]) -> list[dict[str, Any]]:
        return reply[self._member]

    def of(self, reply: dict[str, Any]) -> list[str]:
        return [item[self.name] for item in self.items(reply)]

    def all(self, **members: Any) -> list[str]:
        """Return the names in all pages, after checking the size of each page."""
        pages = list(self._client.get_paginator(self.operation).paginate(**members))
        size = members.get("PaginationConfig", {}).get("PageSize", 10)
        assert all(len(self.of(page)) <= size for page in pages)
        assert "NextToken" not in pages[-1]
        return [name for page in pages for name in self.of(page)]


@pytest.mark.parametrize("size", [3, 13, 100])
def test_pages_join_to_the_whole_newest_first(listing, size):
    assert listing.all(PaginationConfig={"PageSize": size}) == listing.names[::-1]


def test_a_page_has_ten_items_unless_another_number_is_asked_for(listing):
    assert len(listing.of(listing.call())) == 10
    assert len(listing.of(listing.call(MaxResults=100))) == COUNT


def test_an_item_shows_its_name_state_and_times(listing):
    kind = listing.name.removesuffix("Name")
    name = listing.names[1]  # the first one that has failed
    at = datetime.fromtimestamp(START_MS / 1000 + 1, tz=UTC)
    expected = {f"{kind}Name": name, f"{kind}Arn": f"arn:{name}", "CreationTime": at}
    expected |= {
        "TrainingJob": {"TrainingJobStatus": "Failed", "SecondaryStatus": "Failed", "TrainingEndTime": at},
        "TransformJob": {"TransformJobStatus": "Failed", "TransformEndTime": at, "FailureReason": "no memory"},
        "Endpoint": {"EndpointStatus": "Failed"},
    }.get(kind, {})
    expected |= {} if kind in ("Model", "EndpointConfig") else {"LastModifiedTime": at}
    [item] = listing.items(listing.call(NameContains=name))
    assert item == expected


@pytest.mark.parametrize("sort_by", ["Name", "CreationTime"])
@pytest.mark.parametrize("order", ["Ascending", "Descending"])
def test_items_are_sorted_as_asked_for(listing, sort_by, order):
    expected = sorted(listing.names) if sort_by == "Name" else listing.names
    found = listing.all(SortBy=sort_by, SortOrder=order, PaginationConfig={"PageSize": 4})
    assert found == (expected if order == "Ascending" else expected[::-1])


def test_filters_by_name_and_time_are_combined(listing):
    def at(number: int) -> datetime:
        return datetime.fromtimestamp(START_MS / 1000 + number, tz=UTC)

    assert listing.all(NameContains="odd", PaginationConfig={"PageSize": 2}) == listing.names[1::2][::-1]
    assert listing.all(NameContains="ODD") == []
    bounds = {"CreationTimeAfter": at(3), "CreationTimeBefore": at(8)}
    assert listing.all(**bounds, SortOrder="Ascending") == listing.names[3:9]
    found = listing.all(**bounds, NameContains="even", SortBy="Name", PaginationConfig={"PageSize": 2})
    assert sorted(found) == [name for name in listing.names[3:9] if "even" in name]
    assert listing.all(CreationTimeAfter=at(COUNT)) == []


def test_a_token_belongs_to_its_query(listing, refusal):
    token = listing.call(MaxResults=5)["NextToken"]
    assert listing.of(listing.call(MaxResults=5, NextToken=token)) == listing.names[::-1][5:10]
    for members in ({"NameContains": "odd"}, {"SortOrder": "Ascending"}, {"SortBy": "Name"}):
        status, code, message = refusal(listing.call, NextToken=token, **members)
        assert (status, code) == (400, "ValidationException")
        assert "nextToken" in message
    for other in ("made-up", f"{token.rpartition(':')[0]}:{'9' * 5000}"):
        assert refusal(listing.call, NextToken=other)[:2] == (400, "ValidationException")


@pytest.mark.parametrize("size", [0, 101])
def test_a_size_of_a_page_that_is_not_allowed_is_refused(listing, refusal, monkeypatch, size):
    # Disables the client's own check, to test the service's.
    monkeypatch.setattr("botocore.validate.range_check", lambda *arguments: None)
    status, code, message = refusal(listing.call, MaxResults=size)
    assert (status, code) == (400, "ValidationException")
    assert "maxResults" in message


@pytest.mark.parametrize("listing", WITH_STATUS, indirect=True, ids=lambda listing: listing[0])
def test_items_are_chosen_and_sorted_by_their_status(listing):
    failed = [name for number, name in enumerate(listing.names) if (START_MS // 1000 + number) % 3 == 0]
    assert 0 < len(failed) < COUNT
    assert listing.all(StatusEquals="Failed", PaginationConfig={"PageSize": 2}) == failed[::-1]
    by_status = listing.all(SortBy="Status", SortOrder="Ascending", PaginationConfig={"PageSize": 3})
    assert by_status == failed + [name for name in listing.names if name not in failed]


def test_lists_of_what_cannot_exist_are_empty_with_any_filter(sagemaker):
    for operation, member in EMPTY_LISTS.items():
        call = getattr(sagemaker, xform_name(operation))
        assert call()[member] == []
    assert sagemaker.list_notebook_instances(NameContains="x", MaxResults=5)["NotebookInstances"] == []


def test_what_is_not_offered_says_what_to_use_instead(sagemaker, refusal):
    _, code, message = refusal(
        sagemaker.create_inference_component,
        InferenceComponentName="c",
        EndpointName="e",
        Specification={"ModelName": "m"},
    )
    assert (code, "instead, a production variant" in message) == ("UnknownOperationException", True)
    _, code, message = refusal(
        sagemaker.create_compilation_job,
        CompilationJobName="c",
        RoleArn="arn:aws:iam::000000000000:role/SageMakerRole",
        OutputConfig={"S3OutputLocation": "s3://data/out", "TargetDevice": "ml_c5"},
        StoppingCondition={"MaxRuntimeInSeconds": 60},
    )
    assert (code, "CreateCompilationJob" in message, "TrainingCompilerConfig" in message) == (
        "UnknownOperationException",
        True,
        True,
    )
