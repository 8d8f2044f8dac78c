"""The traversal of botocore's shapes visits every part once, innermost first, and ends for recursive shapes."""

from collections.abc import Callable, Mapping
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

from tidemill.wire.protocols.models import service_model
from tidemill.wire.protocols.shapes import Path, fold, members, render


def input_of(service: str, operation: str) -> StructureShape:
    shape = service_model(service).operation_model(operation).input_shape
    assert shape is not None
    return shape


class Example:
    """Builds an example value of each part."""

    def __init__(self) -> None:
        self.order: list[str] = []

    def structure(self, shape: StructureShape, inside: Mapping[str, Any], at: Path) -> Any:
        self.order.append(render(at))
        return dict(inside)

    def list(self, shape: ListShape, item: Any, at: Path) -> Any:
        return [item]

    def map(self, shape: MapShape, key: Any, value: Any, at: Path) -> Any:
        return {key: value}

    def scalar(self, shape: Shape, at: Path) -> Any:
        return shape.type_name

    def again(self, shape: StructureShape, result: Callable[[], Any], at: Path) -> Any:
        return result


def test_members_stand_before_their_own_members_with_their_whole_paths() -> None:
    found = [str(place) for place in members(input_of("sagemaker", "CreateTrainingJob"))]
    assert found[:2] == ["TrainingJobName", "HyperParameters"]
    assert found.index("InputDataConfig") < found.index("InputDataConfig[].DataSource.S3DataSource.S3Uri")
    assert len(found) == len(set(found))
    assert members(None) == ()


def test_a_member_has_its_shape() -> None:
    shapes = {str(place): place.shape.type_name for place in members(input_of("s3", "DeleteObjects"))}
    assert (shapes["Delete"], shapes["Delete.Objects"], shapes["Delete.Quiet"]) == ("structure", "list", "boolean")


def test_a_shape_is_built_from_its_innermost_parts() -> None:
    example = Example()
    built = fold(input_of("sagemaker", "AddTags"), example)
    assert built == {"ResourceArn": "string", "Tags": [{"Key": "string", "Value": "string"}]}
    assert example.order == ["Tags[]", ""]


def test_a_shape_that_contains_itself_is_entered_once_and_refers_to_its_result() -> None:
    shape = input_of("dynamodb", "PutItem")
    item = fold(shape, Example())["Item"]["string"]
    (listed,) = item["L"]
    assert listed() is item
    paths = [str(place) for place in members(shape)]
    assert "Item{}.L" in paths
    assert not any(path.startswith("Item{}.L[]") for path in paths)
