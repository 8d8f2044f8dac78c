"""`smp.partition`: manual placement of ops in the script."""

import operator
from collections.abc import Generator
from contextlib import contextmanager
from typing import SupportsIndex

from smdistributed.modelparallel.backend.exceptions import SMPPartitionError
from smdistributed.modelparallel.tensorflow.marks import tracer
from smdistributed.modelparallel.tensorflow.session import current


def unit_of(index: int) -> str:
    """Return the name of the unit that partition `index` forms under manual placement.

    Args:
        index: From 0.
    """
    return f"partition:{index}"


def partition_of(unit: str) -> int:
    """Return the partition of a unit that `unit_of` named.

    Args:
        unit: ``partition:INDEX``.
    """
    return int(unit.removeprefix("partition:"))


@contextmanager
def partition(index: int) -> Generator[None]:
    """Place the ops created inside this context in partition `index`; the innermost context wins.

    Has no effect if `auto_partition` is True, as in SageMaker, or if the model was wrapped with rules.

    Args:
        index: 0 <= index < `partitions`; not checked if the context has no effect.

    Returns:
        A context manager.

    Raises:
        SMPPartitionError: If there is no such partition.
    """
    state = tracer()
    if current().config.auto_partition if state is None else state.automatic:
        yield  # the index is not checked: the model may have been written for another number of partitions
        return
    number = _checked(index)
    if state is None or state.unit is None:
        yield
        return
    with state.marking(unit_of(number)):
        yield


def _checked(index: int) -> int:
    config = current().config
    number = operator.index(index) if isinstance(index, SupportsIndex) and not isinstance(index, bool) else -1
    if not 0 <= number < config.partitions:
        raise SMPPartitionError(
            f"smp.partition({index!r}): with 'partitions' = {config.partitions} allowed are 0 to "
            f"{config.partitions - 1}; use one of them, or raise 'partitions'"
        )
    return number
