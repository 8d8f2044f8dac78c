"""What becomes of every argument of every public function: honored, without effect, or refused.

Arguments that Horovod has and this package cannot honor are refused, never dropped. Those without effect change no
result in Horovod either: names and hints about speed. A test compares the table with the signatures, and calls
every function with every argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__ = ["ARGUMENTS", "Argument", "Effect", "refuse"]


class Effect(Enum):
    """What a function does with an argument."""

    HONORED = "honored"
    NONE = "without effect"
    REFUSED = "refused"
    """Raises `ValueError`, unless the value is the default."""


@dataclass(frozen=True)
class Argument:
    """A row of the table."""

    effect: Effect
    note: str
    """What the argument does; why it does nothing; or what to do instead."""


def _honored(note: str) -> Argument:
    return Argument(Effect.HONORED, note)


_PROCESS_SET = Argument(Effect.REFUSED, "the group of hvd.init is the only one; pass the group itself to hvd.init")
_SESSION = Argument(Effect.REFUSED, "TensorFlow 2 has no sessions: call it eagerly")
_DEVICE = Argument(Effect.NONE, "tensors travel through the memory of the host")
_NAME = _honored("name of the op in a graph")
_LABEL = Argument(Effect.NONE, "ranks match calls by their order, and there is no op to name")
_GROUPING = Argument(Effect.NONE, "gradients of one dtype always travel together")
_ROOT = _honored("the rank whose value all ranks get")

_REDUCTION = {
    "average": _honored("older form of `op`: True for Average, False for Sum"),
    "device_dense": _DEVICE,
    "device_sparse": _DEVICE,
    "compression": _honored("how floats travel"),
    "op": _honored("Average (default), Sum, Min, Max or Product"),
    "prescale_factor": _honored("multiplied before the reduction"),
    "postscale_factor": _honored("multiplied after the reduction"),
}

ARGUMENTS: Mapping[str, Mapping[str, Argument]] = {
    "DistributedGradientTape": {
        "gradtape": _honored("the tape, before or after its recording"),
        "device_dense": _DEVICE,
        "device_sparse": _DEVICE,
        "compression": _honored("how floats travel"),
        "sparse_as_dense": _honored("makes tf.IndexedSlices dense before the reduction"),
        "op": _honored("Average (default) or Sum"),
        "gradient_predivide_factor": _honored("with Average: divides before the sum and multiplies after it"),
        "num_groups": _GROUPING,
        "groups": _GROUPING,
    },
    "allgather": {"tensor": _honored("concatenated along axis 0"), "name": _NAME, "process_set": _PROCESS_SET},
    "allgather_object": {
        "obj": _honored("anything that can be pickled"),
        "session": _SESSION,
        "name": _LABEL,
        "process_set": _PROCESS_SET,
    },
    "allreduce": {
        "tensor": _honored("a tensor, tf.IndexedSlices, or None, which stays None"),
        **_REDUCTION,
        "name": _NAME,
        "process_set": _PROCESS_SET,
    },
    "barrier": {"process_set": _PROCESS_SET},
    "broadcast": {
        "tensor": _honored("read on `root_rank`; gives dtype and shape on the others"),
        "root_rank": _ROOT,
        "name": _NAME,
        "process_set": _PROCESS_SET,
    },
    "broadcast_object": {
        "obj": _honored("anything that can be pickled; read on `root_rank` only"),
        "root_rank": _ROOT,
        "session": _SESSION,
        "name": _LABEL,
        "process_set": _PROCESS_SET,
    },
    "broadcast_variables": {
        "variables": _honored("assigned, unless another partition of smp holds them"),
        "root_rank": _ROOT,
        "process_set": _PROCESS_SET,
        "inplace": Argument(Effect.NONE, "saves a copy in Horovod; the values are the same"),
    },
    "grouped_allreduce": {
        "tensors": _honored("reduced together, one message for each dtype"),
        **_REDUCTION,
        "process_set": _PROCESS_SET,
    },
    "init": {
        "comm": _honored("the group: None, a list of ranks, a communicator of mpi4py, or a `Communicator`"),
        "process_sets": Argument(Effect.REFUSED, "pass the group itself as `comm` instead"),
    },
}
"""By function and argument. Functions without arguments are not listed."""


def refuse(function: str, **given: Any) -> None:
    """Refuse arguments that cannot be honored.

    Args:
        function: The public function that was called.
        given: Arguments whose rows say `refused`, with the values received; None and empty sequences pass.

    Raises:
        ValueError: For the first one that has a value.
    """
    for name, value in given.items():
        if value is not None and not (isinstance(value, (list, tuple)) and not value):
            raise ValueError(f"hvd.{function}: {name} is {value!r}; allowed is None: {ARGUMENTS[function][name].note}")
