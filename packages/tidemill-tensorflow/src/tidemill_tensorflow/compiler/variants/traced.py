"""Traced training functions: what those of one process and those of several processes have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidemill_tensorflow.compiler.private_api import packer_of
from tidemill_tensorflow.compiler.variants.payback import Account

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import tensorflow as tf
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    from tidemill_tensorflow.compiler.variants.payback import Ledger
    from tidemill_tensorflow.compiler.variants.shapes import Shape
    from tidemill_tensorflow.compiler.variants.trials import Trial

NOT_STORED = "no decision is stored, and deterministic runs decide nothing by time"


@dataclass(frozen=True)
class StepCall:
    """Call of a traced function by the script.

    Attributes:
        original: TensorFlow's method that runs a function as it was traced.
        captured: The tensors and the handles of variables that the function captured.
    """

    original: Callable[[ConcreteFunction, Sequence[tf.Tensor], Sequence[tf.Tensor]], object]
    concrete: ConcreteFunction
    inputs: Sequence[tf.Tensor]
    captured: Sequence[tf.Tensor]

    def slots(self) -> list[tf.Tensor]:
        """Return a new list of all tensors that the function takes, to which its parts add their results."""
        return [*self.inputs, *self.captured]

    def run_as_traced(self) -> object:
        """Run the script's function, and return its results."""
        return self.original(self.concrete, self.inputs, self.captured)


class Coordinator(Protocol):
    """Methods of the session that all kinds of traced functions use.

    Attributes:
        ledger: Times of all functions, which decide when work may begin.
    """

    ledger: Ledger

    @property
    def is_compiling(self) -> bool:
        """Whether the background thread is compiling. Times that are measured meanwhile must not count."""

    @property
    def is_deterministic(self) -> bool:
        """Whether no decision may depend on times."""

    def note(self, text: str) -> None:
        """Write a line to the log."""

    def run_in_background(self, step: TracedStep, work: Callable[[], None], *, wait: bool = False) -> None:
        """Run work in the background thread; return after it if `wait` is set. If it fails, the step runs plain."""

    def stored_decision(self, key: str) -> str | None:
        """Return the variant that an earlier job chose."""

    def note_decision(self, step: TracedStep, shape: Shape) -> None:
        """Store a decision and log it."""

    def note_fallback(self, step: TracedStep, reason: str, *, how: str = "plain") -> None:
        """Log that a function runs plain, or `how` else it runs, and why."""


class TracedStep(ABC):
    """Traced training function. Every run trains, in any variant.

    Attributes:
        shapes: State of each combination of argument shapes.
        reason: Why the whole function runs plain, or None.
        runs: Number of runs.
        key: Key of the whole function in the store of decisions; None before the first run.
        argument_names: Names of the arguments whose shapes count.
        account: What the function has cost and trained, and what may begin now.
        begins_with_xla: Whether the function is compiled by XLA without the compiler, because Keras chose so.
        at_once: The trial of single runs against several runs per call; None before the trial begins.
    """

    def __init__(self, concrete: ConcreteFunction, session: Coordinator, *, begins_with_xla: bool = False) -> None:
        self.name: str = concrete.graph.name
        self.shapes: dict[tuple[object, ...], Shape] = {}
        self.reason: str | None = None
        self.runs = 0
        self.key: str | None = None
        self.argument_names: tuple[str, ...] = ()
        self.account = Account(session.ledger)
        self.begins_with_xla = begins_with_xla
        self.at_once: Trial | None = None
        self._clock = session.ledger.clock
        self._pack = packer_of(concrete)

    @property
    @abstractmethod
    def has_begun(self) -> bool:
        """Whether work on the function has begun, or an earlier job has shown that it need not."""

    @abstractmethod
    def run(self, call: StepCall) -> object:
        """Run one step, and return the function's results."""

    def main_shape(self) -> Shape | None:
        """Return the shape with the most calls, or None before the first call."""
        return max(list(self.shapes.values()), key=lambda shape: shape.calls, default=None)

    def prefix(self) -> str:
        """Return the prefix of the names of the functions that replace this one."""
        return "tidemill_" + "".join(letter if letter.isalnum() else "_" for letter in self.name)

    @abstractmethod
    def give_up(self, reason: str) -> None:
        """Run the function plain from now on."""

    @abstractmethod
    def release(self) -> None:
        """Free graphs and compiled code when the script's function is gone. What the report needs stays."""


def first_lines(error: Exception) -> str:
    """Return an error message as one line of up to 400 characters."""
    text = " ".join(str(getattr(error, "message", error)).split())
    return text[:400]
