"""`smp.partition`: the script says where a part of the model goes."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import SupportsIndex

from smdistributed.modelparallel.backend.exceptions import SMPPartitionError
from smdistributed.modelparallel.tensorflow.marks import tracer
from smdistributed.modelparallel.tensorflow.session import current

__all__ = ["partition", "partition_of", "unit_of"]


def unit_of(index: int) -> str:
    """The name of the unit that is partition `index`."""
    return f"partition:{index}"


def partition_of(unit: str) -> int:
    """The partition that a unit of this name is."""
    return int(unit.removeprefix("partition:"))


@contextmanager
def partition(index: int) -> Iterator[None]:
    """Place the ops created inside into partition `index`; nested, the innermost one counts.

    Without effect where the library finds the cut by itself (`auto_partition`), or rules do.

    Args:
        index: 0 <= index < `partitions`; anything where it has no effect.

    Raises:
        SMPPartitionError: If there is no such partition.
    """
    state = tracer()
    if current().config.auto_partition if state is None else state.automatic:
        yield  # of any index: a model that was placed for another number of partitions runs, too
        return
    place = _checked(index)
    if state is None or state.unit is None:
        yield
        return
    with state.marking(unit_of(place)):
        yield


def _checked(index: int) -> int:
    config = current().config
    if isinstance(index, bool) or not isinstance(index, SupportsIndex) or not 0 <= int(index) < config.partitions:
        raise SMPPartitionError(
            f"smp.partition({index!r}): with 'partitions' = {config.partitions} allowed are 0 to "
            f"{config.partitions - 1}; use one of them, or raise 'partitions'"
        )
    return operator.index(index)
