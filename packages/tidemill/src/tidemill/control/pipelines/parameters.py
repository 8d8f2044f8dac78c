"""The parameters of a pipeline: their definitions, and the values of an execution."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.errors import ValidationException

_MOST = 200
_MEMBERS = ("Name", "Type", "DefaultValue", "EnumValues")


def _truth(text: str) -> bool:
    # AWS's SDK sends str(True).
    return {"true": True, "false": False}[text.lower()]


_TYPES: Mapping[str, tuple[Callable[[str], Any], tuple[type, ...]]] = {
    "String": (str, (str,)),
    "Integer": (int, (int,)),
    "Float": (float, (float, int)),
    "Boolean": (_truth, (bool,)),
}
"""By Type: what reads a text, and the types of its values in JSON."""


@dataclass(frozen=True, slots=True)
class ParameterDefinition:
    """One parameter.

    Attributes:
        type: ``String``, ``Integer``, ``Float`` or ``Boolean``.
        default: Its value if an execution gives none; None for a parameter that each execution must give.
        allowed: EnumValues; empty if all values are allowed.
    """

    name: str
    type: str
    default: Any = None
    allowed: tuple[Any, ...] = ()

    def refusal(self, value: Any) -> str:
        """Return why a value is not allowed, or an empty text.

        Args:
            value: A value of JSON.
        """
        fits = isinstance(value, _TYPES[self.type][1]) and (self.type == "Boolean" or not isinstance(value, bool))
        if not fits or (isinstance(value, float) and not math.isfinite(value)):
            return f"it is no {self.type}"
        if self.allowed and value not in self.allowed:
            return f"its EnumValues are {', '.join(str(each) for each in self.allowed)}"
        return ""

    def read(self, text: str) -> Any:
        """Return the value of a text in a request.

        Raises:
            ValidationException: It is no value of the type, or not one of EnumValues.
        """
        try:
            value = _TYPES[self.type][0](text)
        except (ValueError, KeyError):
            value = None
        reason = self.refusal(value)
        if reason:
            raise ValidationException(f"Value {text!r} at 'pipelineParameters.{self.name}' is not allowed: {reason}")
        return value


def parse_parameters(found: Any) -> dict[str, ParameterDefinition]:
    """Return the Parameters of a definition by name.

    Args:
        found: The list of the definition.

    Raises:
        ValidationException: It is malformed, a name occurs twice, or a default is not allowed.
    """
    if not isinstance(found, list) or len(found) > _MOST:
        raise _refusal("", found, f"a list of at most {_MOST} parameters is expected")
    parameters: dict[str, ParameterDefinition] = {}
    for value in found:
        name, kind = (value.get(each) if isinstance(value, dict) else None for each in ("Name", "Type"))
        if not isinstance(name, str) or not name or name in parameters:
            raise _refusal("", value, "a parameter has a Name of its own")
        if not isinstance(kind, str) or kind not in _TYPES:
            raise _refusal(f".{name}.type", kind, f"one of {', '.join(_TYPES)}")
        unknown = sorted(value.keys() - set(_MEMBERS))
        if unknown:
            raise _refusal(f".{name}", unknown, f"members here are {', '.join(_MEMBERS)}")
        allowed = value.get("EnumValues") or []
        if not isinstance(allowed, list):
            raise _refusal(f".{name}.enumValues", allowed, "a list is expected")
        parameters[name] = parameter = ParameterDefinition(name, kind, value.get("DefaultValue"), tuple(allowed))
        reason = "" if parameter.default is None else parameter.refusal(parameter.default)
        if reason:
            raise _refusal(f".{name}.defaultValue", parameter.default, reason)
    return parameters


def parameter_values(
    definitions: Mapping[str, ParameterDefinition], given: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    """Return the values of an execution by name: those of the request, else the defaults.

    Args:
        definitions: The parameters of the pipeline.
        given: ``{"Name": ..., "Value": ...}`` each.

    Raises:
        ValidationException: A parameter does not exist, is given twice or missing, or a value is not allowed.
    """
    values: dict[str, Any] = {}
    for each in given:
        name = each["Name"]
        if name not in definitions or name in values:
            reason = "it is given twice" if name in values else "the pipeline has no such parameter"
            present = ", ".join(definitions) or "none"
            raise ValidationException(
                f"Value {name!r} at 'pipelineParameters' is not allowed: {reason}; its parameters are {present}"
            )
        values[name] = definitions[name].read(each["Value"])
    missing = [name for name, each in definitions.items() if name not in values and each.default is None]
    if missing:
        raise ValidationException(
            f"Value {', '.join(missing)} at 'pipelineParameters' is missing: these parameters have no default; give"
            " each a value"
        )
    return {name: values.get(name, each.default) for name, each in definitions.items()}


def _refusal(at: str, value: object, reason: str) -> ValidationException:
    return ValidationException(f"Value {value!r} at 'pipelineDefinition.parameters{at}' is not allowed: {reason}")
