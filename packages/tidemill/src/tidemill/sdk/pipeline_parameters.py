"""What the definition of a pipeline can refer to besides steps: its parameters, and facts about its execution."""

from collections.abc import Sequence
from typing import Any, ClassVar

from tidemill.sdk.expressions import Join
from tidemill.sdk.variable import PipelineVariable

__all__ = [
    "ExecutionVariable",
    "ExecutionVariables",
    "Parameter",
    "ParameterBoolean",
    "ParameterFloat",
    "ParameterInteger",
    "ParameterString",
]


class Parameter(PipelineVariable):
    """A value that is given when a pipeline is started.

    Args:
        name: Name of the parameter.
        default_value: Value of executions that are started without one. Default: none, so each has to give one.

    Raises:
        TypeError: The default has another type.
    """

    _type: ClassVar[str]
    _allowed: ClassVar[tuple[type, ...]]

    def __init__(self, name: str, default_value: Any = None) -> None:
        if default_value is not None and not isinstance(default_value, self._allowed):
            raise TypeError(
                f"default_value={default_value!r} ({type(default_value).__name__}) of the parameter {name!r}; expected"
                f" {' or '.join(each.__name__ for each in self._allowed)}"
            )
        self.name = name
        self.default_value = default_value

    @property
    def expr(self) -> dict[str, str]:
        """The expression of the parameter in a definition."""
        return {"Get": f"Parameters.{self.name}"}

    def to_string(self) -> PipelineVariable:
        """Return the parameter as a text.

        Returns:
            A variable.
        """
        return Join(on="", values=[self])

    def to_request(self) -> dict[str, Any]:
        """Return the declaration of the parameter in a definition.

        Returns:
            A member of ``Parameters``.
        """
        declared = {"Name": self.name, "Type": self._type}
        return declared if self.default_value is None else {**declared, "DefaultValue": self.default_value}


class ParameterString(Parameter):
    """A text that is given when a pipeline is started.

    Args:
        name: Name of the parameter.
        default_value: As for `Parameter`.
        enum_values: The only values that are allowed. Default: all.

    Raises:
        TypeError: The default is no text.
        ValueError: The default is not allowed.
    """

    _type = "String"
    _allowed = (str,)

    def __init__(self, name: str, default_value: str | None = None, enum_values: Sequence[str] | None = None) -> None:
        super().__init__(name, default_value)
        if default_value and enum_values and default_value not in enum_values:
            raise ValueError(f"default_value={default_value!r} of {name!r} is not one of enum_values={enum_values!r}")
        self.enum_values = enum_values

    def to_string(self) -> PipelineVariable:
        """Return the parameter, which is a text.

        Returns:
            The parameter itself.
        """
        return self

    def to_request(self) -> dict[str, Any]:
        """Return the declaration of the parameter in a definition.

        Returns:
            A member of ``Parameters``.
        """
        declared = super().to_request()
        return {**declared, "EnumValues": list(self.enum_values)} if self.enum_values else declared


class ParameterInteger(Parameter):
    """A whole number that is given when a pipeline is started.

    Args:
        name: Name of the parameter.
        default_value: As for `Parameter`.

    Raises:
        TypeError: The default is no whole number.
    """

    _type = "Integer"
    _allowed = (int,)


class ParameterFloat(Parameter):
    """A number that is given when a pipeline is started.

    Args:
        name: Name of the parameter.
        default_value: As for `Parameter`.

    Raises:
        TypeError: The default is no number.
    """

    _type = "Float"
    _allowed = (float, int)


class ParameterBoolean(Parameter):
    """True or False, given when a pipeline is started.

    Args:
        name: Name of the parameter.
        default_value: As for `Parameter`.

    Raises:
        TypeError: The default is neither True nor False.
    """

    _type = "Boolean"
    _allowed = (bool,)


class ExecutionVariable(PipelineVariable):
    """A fact about the execution; see `ExecutionVariables`.

    Args:
        name: Its name in a definition.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def expr(self) -> dict[str, str]:
        """The expression of the fact in a definition."""
        return {"Get": f"Execution.{self.name}"}

    def to_string(self) -> PipelineVariable:
        """Return the fact, which is a text.

        Returns:
            The variable itself.
        """
        return self


class ExecutionVariables:
    """The facts about an execution."""

    START_DATETIME = ExecutionVariable("StartDateTime")
    CURRENT_DATETIME = ExecutionVariable("CurrentDateTime")
    PIPELINE_NAME = ExecutionVariable("PipelineName")
    PIPELINE_ARN = ExecutionVariable("PipelineArn")
    PIPELINE_EXECUTION_ID = ExecutionVariable("PipelineExecutionId")
    PIPELINE_EXECUTION_ARN = ExecutionVariable("PipelineExecutionArn")
    TRAINING_JOB_NAME = ExecutionVariable("TrainingJobName")
    PROCESSING_JOB_NAME = ExecutionVariable("ProcessingJobName")
