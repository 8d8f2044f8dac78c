"""The compatibility table compared with botocore's models, the routed operations, and the generated page."""

import importlib.util
import inspect
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.model import ListShape, MapShape, Shape, StructureShape

from tidemill.core.compatibility import COMMON, OPERATIONS, row_of
from tidemill.core.compatibility.rows import Honored, Recorded, Refused
from tidemill.errors import AwsError
from tidemill.services.autoscaling import AutoScalingService
from tidemill.services.cloudwatch import CloudWatchService
from tidemill.services.iam import IamService
from tidemill.services.kms import KmsService
from tidemill.services.logs import LogsService
from tidemill.services.metrics import MetricsService
from tidemill.services.runtime import RuntimeService
from tidemill.services.s3 import S3Service
from tidemill.services.sagemaker import SageMakerService
from tidemill.services.sts import StsService
from tidemill.wire.operations import operation
from tidemill.wire.protocols import shapes
from tidemill.wire.protocols.models import service_model

REPOSITORY = Path(__file__).resolve().parents[4]
FORMS = {
    "sagemaker-runtime": "rest-json",
    "sagemaker-metrics": "rest-json",
    "s3": "rest-xml",
    "sts": "query",
    "iam": "query",
}

SERVICES: dict[str, type[Any]] = {
    "sagemaker": SageMakerService,
    "sagemaker-metrics": MetricsService,
    "sagemaker-runtime": RuntimeService,
    "logs": LogsService,
    "cloudwatch": CloudWatchService,
    "application-autoscaling": AutoScalingService,
    "sts": StsService,
    "iam": IamService,
    "kms": KmsService,
    "s3": S3Service,
}

ALL = [(service, name) for service, operations in OPERATIONS.items() for name in operations]


def routed_by(service: type[Any]) -> set[str]:
    """Return the operations for which a service has handlers."""
    return set(service(**{name: Mock() for name in inspect.signature(service).parameters}).handlers)


def input_of(service: str, name: str) -> StructureShape | None:
    return service_model(service).operation_model(name).input_shape


def refuse(service: str, name: str, request: Mapping[str, Any]) -> None:
    operation(service, name, FORMS.get(service, "json")).refuse(request)


def rows_that(wanted: Callable[[Any], bool]) -> list[Any]:
    """Return service, operation, place and row of every row for which ``wanted`` returns true."""
    return [
        pytest.param(service, name, place, row, id=f"{name}.{place}")
        for service, name in ALL
        for place in shapes.members(input_of(service, name))
        if wanted(row := row_of(service, name, str(place)))
    ]


def is_refused(row: Any) -> bool:
    return isinstance(row, Refused)


def is_choice(row: Any) -> bool:
    return isinstance(row, Honored) and row.only != ()


def value_of(shape: Shape) -> Any:
    """Return a value that requests something."""
    if isinstance(shape, StructureShape):
        return {member: value_of(inner) for member, inner in list(shape.members.items())[:1]}
    if isinstance(shape, ListShape):
        return [value_of(shape.member)]
    if isinstance(shape, MapShape):
        return {"key": value_of(shape.value)}
    return {"boolean": True, "integer": 7, "long": 7, "float": 0.5, "double": 0.5, "blob": b"x"}.get(
        shape.type_name, "something"
    )


def within(path: shapes.Path, value: Any) -> Any:
    """Return a request that contains only a value at a path."""
    if not path:
        return value
    inner = within(path[1:], value)
    return [inner] if path[0] == shapes.ITEM else {"key" if path[0] == shapes.VALUE else path[0]: inner}


@pytest.mark.parametrize(("service", "name"), ALL)
def test_every_member_has_a_row_and_every_row_a_member(service: str, name: str) -> None:
    rows = OPERATIONS[service][name]
    places = [str(place) for place in shapes.members(input_of(service, name))]
    covering = tuple(path for path in places if isinstance(row_of(service, name, path), Recorded | Refused))
    without = [
        path
        for path in places
        if row_of(service, name, path) is None
        and not any(path.startswith((f"{above}.", f"{above}[]", f"{above}{{}}")) for above in covering)
    ]
    assert without == []
    assert [path for path in rows if path not in places] == []


@pytest.mark.parametrize("service", list(COMMON))
def test_every_common_row_belongs_to_a_member_of_some_operation(service: str) -> None:
    unused = set(COMMON[service])
    for name, rows in OPERATIONS[service].items():
        unused -= {str(place) for place in shapes.members(input_of(service, name))} - rows.keys()
    assert unused == set()


def test_the_operations_of_the_table_are_those_that_are_routed() -> None:
    routed = {(name, operation_name) for name, service in SERVICES.items() for operation_name in routed_by(service)}
    assert routed == set(ALL)


@pytest.mark.parametrize(("service", "name", "place", "row"), rows_that(is_refused))
def test_a_refused_member_is_refused_by_name(service: str, name: str, place: shapes.Place, row: Refused) -> None:
    with pytest.raises(AwsError) as refusal:
        refuse(service, name, within(place.path, value_of(place.shape)))
    message = refusal.value.message
    assert place.path[-1].lower() in message.lower()
    assert row.reason in message
    assert refusal.value.status in (400, 404)


@pytest.mark.parametrize(("service", "name", "place", "row"), rows_that(is_refused))
def test_a_member_that_requests_nothing_is_accepted(service: str, name: str, place: shapes.Place, row: Refused) -> None:
    empty = {"boolean": False, "string": "", "list": [], "map": {}, "structure": {}}.get(place.shape.type_name)
    for value in (empty, *row.harmless):
        refuse(service, name, within(place.path, value))


@pytest.mark.parametrize(("service", "name", "place", "row"), rows_that(is_choice))
def test_a_member_with_a_choice_accepts_the_allowed_values(
    service: str, name: str, place: shapes.Place, row: Honored
) -> None:
    for value in row.only:
        refuse(service, name, within(place.path, value))
    with pytest.raises(AwsError, match=f"this version offers {row.only[0]}"):
        refuse(service, name, within(place.path, value_of(place.shape)))


def test_a_refusal_shows_member_value_and_what_to_do() -> None:
    source = {"S3DataSource": {"S3DataType": "Converse"}}
    request = {"InputDataConfig": [{"ChannelName": "a"}, {"ChannelName": "b", "DataSource": source}]}
    with pytest.raises(AwsError) as refusal:
        refuse("sagemaker", "CreateTrainingJob", request)
    assert refusal.value.message == (
        "Value 'Converse' at 'inputDataConfig.2.member.dataSource.s3DataSource.s3DataType' is not allowed:"
        " this version offers S3Prefix, ManifestFile, AugmentedManifestFile"
    )
    assert refusal.value.code == "ValidationException"


def test_an_operation_without_rows_refuses_nothing() -> None:
    refuse("sagemaker", "CreatePipeline", {"PipelineName": "p"})


def test_the_page_is_that_of_the_table() -> None:
    writer = page_writer()
    page = writer.PAGE.read_text()
    assert page == writer.replaced(page), "docs/compatibility.md is stale; run `make compatibility`"


def test_each_client_has_a_test_that_exists_for_what_the_page_says_and_its_version_is_in_the_readme() -> None:
    writer = page_writer()
    tested = tomllib.loads(writer.CLIENTS.read_text())
    named = [cell for flow in tested["flow"] for cell in flow.values() if "::" in cell]
    missing = [cell for cell in named if not _has_test(cell)]
    assert len(named) > 50 and not missing
    readme = (REPOSITORY / "README.md").read_text()
    (row,) = [line for line in readme.splitlines() if line.startswith("| AWS clients:")]
    sdks = {client["key"]: writer.pinned(client) for client in tested["client"]}
    assert all(sdks[key] in row for key in ("v1", "v2", "v3", "js")), (row, sdks)


def _has_test(cell: str) -> bool:
    file, _, function = cell.partition("::")
    return f"\ndef {function}(" in (REPOSITORY / file).read_text()


def test_a_page_without_marks_is_not_written_over() -> None:
    with pytest.raises(ValueError, match="the page lacks the line"):
        page_writer().replaced("# Compatibility\n")


def page_writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_compatibility", REPOSITORY / "docs/write_compatibility.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    load: Callable[[ModuleType], None] = spec.loader.exec_module
    load(module)
    return module
