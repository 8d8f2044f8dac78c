"""The results of a step: the values of all microbatches, in the structure that the decorated function returns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Tensor, TypeSpec
from smdistributed.modelparallel.tensorflow.engine.plan import Plan
from smdistributed.modelparallel.tensorflow.engine.trace import Result
from smdistributed.modelparallel.tensorflow.session import current
from smdistributed.modelparallel.tensorflow.stepping.output import StepOutput


@dataclass(frozen=True)
class StepTensors:
    """The tensors of one call of a step."""

    plans: Sequence[Plan]
    """One plan for all microbatches, or one for each."""
    values: Sequence[Sequence[Any]]
    """Per result and microbatch, its components; None if another rank has them."""

    def pack(self) -> Any:
        """Return the structure that the body returned, with a `StepOutput` for each tensor."""
        traces = [plan.trace for plan in self.plans]
        if current().config.strict:
            self._require_equal()
        structure = traces[0].structure
        if structure is None:
            return None
        results = zip(*(trace.results for trace in traces), strict=True)
        packed = [_packed(same, parts) for same, parts in zip(results, self.values, strict=True)]
        return tf.nest.pack_sequence_as(structure, packed)

    def _require_equal(self) -> None:
        for results in zip(*(plan.trace.results for plan in self.plans), strict=True):
            values = [result.value for result in results if result.spec is None]
            if not all(_is_equal(value, values[0]) for value in values):
                raise SMPUsageError(
                    f"a result of the step that is not a tensor differs between microbatches: {values!r:.300}; "
                    "return a tensor, or leave 'strict' out to get the first one"
                )


def _is_equal(value: Any, other: Any) -> bool:
    if isinstance(value, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(value, other)
    return bool(value == other)


def _packed(results: Sequence[Result], parts: Sequence[Any]) -> object:
    """Pack one result for the caller: the values of all microbatches from one plan, or from one plan each."""
    result = results[0]
    if result.spec is not None:
        return StepOutput([_component(result.spec, part) for part in parts], shared_rows=_shared_rows(results, parts))
    # A gradient may be None because the loss does not depend on its variable: scripts call accumulate() on it anyway.
    return StepOutput([None] * len(parts)) if result.value is None else result.value


def _shared_rows(results: Sequence[Result], parts: Sequence[Any]) -> int | Tensor:
    if parts[0] is None or len({result.origin for result in results}) > 1:
        return 0
    rows = results[0].shared_rows
    return rows if isinstance(rows, int) else parts[0][-1]


def _component(spec: TypeSpec, parts: tuple[Any, ...] | None) -> object:
    if parts is None:
        return None
    components = parts[: len(tf.nest.flatten(spec, expand_composites=True))]
    return tf.nest.pack_sequence_as(spec, list(components), expand_composites=True)
