"""Functions of a pipeline's definition, and the properties and files of steps that they read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.sdk.variable import PipelineVariable, is_pipeline_variable

__all__ = ["Join", "JsonGet", "Properties", "PropertyFile"]


def expressed(value: Any) -> Any:
    """Return a value of a definition with expressions in place of the variables within it.

    Args:
        value: A variable, a value of JSON, or one with variables.
    """
    if is_pipeline_variable(value):
        return value.expr
    if isinstance(value, Mapping):
        return {key: expressed(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [expressed(each) for each in value]
    return value


class Join(PipelineVariable):
    """Values as one text.

    Args:
        on: Text between two values.
        values: Texts, numbers and variables.

    Example:
        >>> Join(on="/", values=["s3:/", "bucket", "data"]).expr
        {'Std:Join': {'On': '/', 'Values': ['s3:/', 'bucket', 'data']}}
    """

    def __init__(self, on: str = "", values: Sequence[Any] = ()) -> None:
        self.on = on
        self.values = list(values)

    @property
    def expr(self) -> dict[str, Any]:
        """The expression of the function in a definition."""
        return {"Std:Join": {"On": self.on, "Values": expressed(self.values)}}

    @property
    def referenced_steps(self) -> Sequence[Any]:
        """The steps, or their names, whose results the values need."""
        return [step for each in self.values if is_pipeline_variable(each) for step in each.referenced_steps]

    def to_string(self) -> PipelineVariable:
        """Return the function, whose result is a text.

        Returns:
            The function itself.
        """
        return self


@dataclass(frozen=True)
class PropertyFile:
    """A JSON file in an output of a processing step, which `JsonGet` reads.

    Attributes:
        name: Name of the file in the definition.
        output_name: Name of the step's output.
        path: Path of the file below that output.
    """

    name: str
    output_name: str
    path: str

    @property
    def expr(self) -> dict[str, str]:
        """The declaration of the file in a definition."""
        return {"PropertyFileName": self.name, "OutputName": self.output_name, "FilePath": self.path}


class JsonGet(PipelineVariable):
    """A value of a JSON file.

    Args:
        step_name: Name of the processing step that writes the file, or the step itself.
        property_file: A `PropertyFile` of that step, or its name.
        json_path: Path of the value, e.g. ``metrics.mse.value``.
        s3_uri: A `Join` with the file's place, instead of ``property_file``.
        step: The step that writes the file, instead of ``step_name``.

    Raises:
        ValueError: Both or none of ``property_file`` and ``s3_uri`` are given, or there is no step.
    """

    def __init__(
        self,
        step_name: Any = None,
        property_file: PropertyFile | str | None = None,
        json_path: str | None = None,
        s3_uri: Join | None = None,
        step: Any = None,
    ) -> None:
        if step is None and not isinstance(step_name, str | None):
            step, step_name = step_name, None  # in its older form, the step itself comes first
        self.step_name = step.name if step is not None else step_name
        if (property_file is None) == (s3_uri is None):
            raise ValueError(
                f"JsonGet has property_file={property_file!r} and s3_uri={s3_uri!r}; expected exactly one of them"
            )
        if property_file is not None and not self.step_name:
            raise ValueError(f"JsonGet has no step_name: the step that writes property_file={property_file!r}")
        self.property_file = property_file
        self.json_path = json_path
        self.s3_uri = s3_uri
        self._step = step

    @property
    def expr(self) -> dict[str, Any]:
        """The expression of the function in a definition."""
        if self.s3_uri is not None:
            return {"Std:JsonGet": {"S3Uri": expressed(self.s3_uri), "Path": self.json_path}}
        file = self.property_file
        name = file.name if isinstance(file, PropertyFile) else file
        place = {"Get": f"Steps.{self.step_name}.PropertyFiles.{name}"}
        return {"Std:JsonGet": {"PropertyFile": place, "Path": self.json_path}}

    @property
    def referenced_steps(self) -> Sequence[Any]:
        """The step that writes the file, and those that its place needs."""
        own = self._step or self.step_name
        return [*([own] if own else ()), *(self.s3_uri.referenced_steps if self.s3_uri is not None else ())]

    def to_string(self) -> PipelineVariable:
        """Return the value as a text.

        Returns:
            A variable.
        """
        return Join(on="", values=[self])


class Properties(PipelineVariable):
    """What the operation that describes a step's job answers; attributes and items are its members.

    Args:
        step: The step.
        path: Path of the member, ``""`` for the whole answer.
        shapes: Shapes of botocore's model that the answer has; names that none of them has are refused. None allows
            every name.

    Example:
        ``train.properties.ModelArtifacts.S3ModelArtifacts``, ``prepare.properties.ProcessingOutputConfig.Outputs["x"]``
    """

    def __init__(self, step: Any, path: str = "", shapes: Sequence[Any] | None = None) -> None:
        self._owner = step
        self._path = path
        self._shapes = shapes

    @property
    def expr(self) -> dict[str, str]:
        """The expression of the member in a definition."""
        return {"Get": f"Steps.{self._owner.name}{self._path}"}

    @property
    def referenced_steps(self) -> Sequence[Any]:
        """The step."""
        return [self._owner]

    def to_string(self) -> PipelineVariable:
        """Return the member as a text.

        Returns:
            A variable.
        """
        return Join(on="", values=[self])

    def __getattr__(self, name: str) -> "Properties":
        """Return a member of a structure."""
        if name.startswith("_"):
            raise AttributeError(name)
        if self._shapes is None:
            return Properties(self._owner, f"{self._path}.{name}")
        members = {key: shape for each in self._shapes for key, shape in getattr(each, "members", {}).items()}
        if name not in members:
            raise AttributeError(
                f"{self.expr['Get']} has no member {name!r}; it has {', '.join(sorted(members)) or 'none'}"
            )
        return Properties(self._owner, f"{self._path}.{name}", [members[name]])

    def __getitem__(self, key: int | str) -> "Properties":
        """Return an item of a list or a map."""
        path = f"{self._path}[{key!r}]"
        if self._shapes is None:
            return Properties(self._owner, path)
        items = [getattr(each, "member", None) or getattr(each, "value", None) for each in self._shapes]
        if None in items:
            raise TypeError(f"{self.expr['Get']} is neither a list nor a map, so it has no item {key!r}")
        return Properties(self._owner, path, items)
