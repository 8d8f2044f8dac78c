"""Values that only an execution of a pipeline knows, and calls that a step of a pipeline repeats.

The rest of the SDK meets both here: requests may contain a `PipelineVariable` wherever they contain a text or a number,
and with a session for pipelines `run`, `fit` and so on return `StepArguments` instead of creating a job.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, TypeGuard

from tidemill.core.images import device_of


class PipelineVariable(ABC):
    """A value that only an execution of a pipeline knows: a parameter, a property of a step, a function of both."""

    @property
    @abstractmethod
    def expr(self) -> Any:
        """The expression of the variable in a definition, e.g. ``{"Get": "Parameters.Epochs"}``."""

    @property
    def referenced_steps(self) -> Sequence[Any]:
        """The steps, or their names, whose results the variable needs."""
        return ()

    @abstractmethod
    def to_string(self) -> "PipelineVariable":
        """Return the variable as a text, for members of requests that are texts.

        Returns:
            A variable.
        """

    def __str__(self) -> str:
        """Refuse what f-strings and `str` would make of the variable: its value is not known yet."""
        raise TypeError(
            f"{type(self).__name__} has no value before the pipeline is executed, so it cannot become a text here; use"
            " VARIABLE.to_string(), or Join(on='', values=[...]) to build a text of it"
        )

    def __bool__(self) -> bool:
        """Return True: a variable that is given is given, whatever its value will be."""
        return True

    def __int__(self) -> int:
        """Refuse the conversion, as `__str__` does."""
        raise TypeError(f"{type(self).__name__} has no value before the pipeline is executed")

    __float__ = __int__  # type: ignore[assignment] - it only raises


def is_pipeline_variable(var: object) -> TypeGuard[PipelineVariable]:
    """Return whether a value is one that only an execution knows.

    Args:
        var: Any value.

    Returns:
        True for a `PipelineVariable`.
    """
    return isinstance(var, PipelineVariable)


def known(value: Any) -> Any:
    """Return a value; of a parameter of a pipeline its default, for what must be decided before the execution.

    Args:
        value: Any value.
    """
    return getattr(value, "default_value", None) if is_pipeline_variable(value) else value


def device_for(instance_type: Any) -> str:
    """Return the device of an instance type, which may be a parameter of a pipeline: then that of its default.

    Args:
        instance_type: The type. Default: ``local``.
    """
    return device_of(known(instance_type) or "local")


@dataclass(frozen=True)
class StepContext:
    """The step whose request is being written.

    Attributes:
        pipeline: Name of the pipeline; empty if the step is asked for its arguments outside of one.
        step: Name of the step.
        requests: Requests that were made for it, by operation of boto3's client.
    """

    pipeline: str
    step: str
    requests: dict[str, dict[str, Any]] = field(default_factory=dict)


class RecordingClient:
    """A client that keeps the requests of a step's job, and sends all others.

    Args:
        client: The client that sends.
        requests: Gets the kept requests, by operation.
    """

    def __init__(self, client: Any, requests: dict[str, dict[str, Any]]) -> None:
        self._sent = client
        self._requests = requests

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("create_"):
            return getattr(self._sent, name)

        def record(**request: Any) -> dict[str, Any]:
            self._requests[name] = request
            return {}

        return record


@dataclass(frozen=True)
class StepArguments:
    """A call of ``run``, ``fit``, ``transform``, ``create`` or ``register``, which a step of a pipeline repeats.

    Attributes:
        owner: The object of the method.
        session: Its session.
        operation: Operation of boto3's client that the call would send.
        call: Makes the call.
    """

    owner: Any
    session: Any
    operation: str
    call: Callable[[], Any] = field(repr=False)

    def request(self, context: StepContext) -> dict[str, Any]:
        """Make the call without sending its request; its uploads are made. Return the request.

        Args:
            context: The step.
        """
        with self.session.recording(context):
            self.call()
        return context.requests[self.operation]


def deferrable(operation: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a method return `StepArguments` when its session is one for pipelines.

    Args:
        operation: Operation of boto3's client that the method sends.
    """

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(method)

        @wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            session = getattr(
                self, "sagemaker_session", self
            )  # the methods of sessions themselves can be deferred, too
            if not session.is_deferring:
                return method(self, *args, **kwargs)
            given = signature.bind(self, *args, **kwargs)
            if "wait" in signature.parameters:
                given.arguments["wait"] = False
            return StepArguments(self, session, operation, partial(method, *given.args, **given.kwargs))

        return call

    return decorate
