"""Who keeps the slots of an optimizer: the rank that holds the variable and, where replicas share them out, updates it.

With `shard_optimizer_state` each replica keeps the slots of about as many bytes of variables as any other. It updates
those variables only, and sends what became of them to the other replicas. What it does not keep takes no memory here.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow.collectives import TensorGroup, data_parallel_group, model_parallel_group
from smdistributed.modelparallel.tensorflow.data_parallel import average_shares, spread
from smdistributed.modelparallel.tensorflow.engine.variables import is_foreign, make_foreign, tensorflow_variable
from smdistributed.modelparallel.tensorflow.keras_api import IS_TF_KERAS
from smdistributed.modelparallel.tensorflow.marks import tracer
from smdistributed.modelparallel.tensorflow.session import Session, current, is_initialized

__all__ = [
    "Shares",
    "add",
    "groups_of_others",
    "install",
    "is_distributed",
    "is_kept_here",
    "is_sharding",
    "is_updated_here",
    "prepare",
    "release_foreign_slots",
    "replica_of",
    "require_known",
    "require_outside_a_step",
    "shared_session",
    "shares_of",
]

_log = logging.getLogger("smdistributed.modelparallel")
_REPLICA = "_smp_replica"
_predicates: list[Callable[[Any], bool]] = []
"""Whether a variable belongs to a distributed model, as `install` was told."""


def install(is_of_model: Callable[[Any], bool]) -> None:
    """Say which variables belong to a model that has been cut."""
    _predicates[:] = [is_of_model]


def is_distributed(variables: Iterable[Any]) -> bool:
    """Whether any of the variables belongs to a model that has been cut."""
    return any(map(_predicates[0], variables))


def is_sharding(session: Session) -> bool:
    """Whether the replicas share out slots."""
    return session.config.shard_optimizer_state and session.dp_group.size > 1


class Shares:
    """Which replica updates which variable of an optimizer; the same on all replicas."""

    def __init__(self, session: Session) -> None:
        self.rank = session.dp_group.rank
        """This replica."""
        self._session = session
        self._owners: dict[str, int] = {}
        self._loads_bytes = [0] * session.dp_group.size

    def divide(self, variables: Iterable[Any]) -> None:
        """Give out variables that nobody has yet: the largest first, each to the replica that has least."""
        fresh = [inner for inner in map(tensorflow_variable, variables) if inner._unique_id not in self._owners]
        sizes = [inner.shape.num_elements() * inner.dtype.size for inner in fresh]
        for place in sorted(range(len(fresh)), key=lambda place: (-sizes[place], place)):
            replica = min(range(len(self._loads_bytes)), key=lambda replica: (self._loads_bytes[replica], replica))
            self._owners[fresh[place]._unique_id] = replica
            self._loads_bytes[replica] += sizes[place]

    def owner(self, variable: Any) -> int | None:
        """The replica that updates a variable; None for one of another partition."""
        return self._owners.get(tensorflow_variable(variable)._unique_id)

    def other(self, variable: Any) -> int | None:
        """The replica that updates a variable, if that is another one than this."""
        owner = self.owner(variable)
        return None if owner == self.rank else owner

    def means(self, gradients: Sequence[Any], variables: Iterable[Any]) -> list[Any]:
        """Average over the replicas the gradients of what this one updates; the others stay as they came."""
        return average_shares(gradients, [self.owner(variable) for variable in variables], self._session)

    def spread(self, variables: Iterable[Any]) -> None:
        """Give variables the values that they have on the replicas that update them; collective over these."""
        here = [tensorflow_variable(variable) for variable in variables if not is_foreign(variable)]
        pairs = [(variable, owner) for variable in here if (owner := self.owner(variable)) is not None]
        spread([variable for variable, _ in pairs], [owner for _, owner in pairs], self._session)

    def name_of(self, replica: int) -> str:
        """How errors call the rank of a replica that holds the same partition as this one."""
        return self._session.world.name_of(self._session.dp_group.ranks[replica])


def shared_session(variables: Sequence[Any]) -> Session | None:
    """The session, if updating the variables concerns other ranks too; inside a step it does not."""
    if not is_initialized() or tracer() is not None:
        return None
    session = current()
    if session.config.partitions == 1 and not session.config.ddp:
        return None
    return session if is_distributed(variables) else None


def groups_of_others(session: Session, shares: Shares | None) -> list[TensorGroup]:
    """The ranks that have the gradients which this one has not, of those that an optimizer is applied to."""
    replicas = [] if shares is None else [data_parallel_group(session)]
    return replicas if session.config.partitions == 1 else [*replicas, model_parallel_group(session)]


@dataclass
class _Book:
    """What is known of one optimizer."""

    variables: list[weakref.ref[Any]] = field(default_factory=list)
    """Those that it was built with."""
    slots: dict[int, tuple[weakref.ref[Any], weakref.ref[Any]]] = field(default_factory=dict)
    """id of a slot -> (variable, slot)."""
    shares: Shares | None = None


_books: weakref.WeakKeyDictionary[Any, _Book] = weakref.WeakKeyDictionary()


def prepare(optimizer: Any, variables: Sequence[Any]) -> None:
    """Decide who keeps the slots of `variables`, as far as it is known, before they are made."""
    book = _book(optimizer)
    known = {id(ref()) for ref in book.variables}
    inner = [tensorflow_variable(variable) for variable in variables]
    book.variables += [weakref.ref(variable) for variable in inner if id(variable) not in known]
    _settle(book)


def is_kept_here(optimizer: Any, variable: Any) -> bool:
    """Whether this rank keeps the slots of a variable."""
    return is_updated_here(variable, _book(optimizer).shares)


def add(optimizer: Any, variable: Any, slot: Any) -> None:
    """Note a slot that was made; one that another rank keeps lets go of its memory."""
    inner = tensorflow_variable(slot)
    _book(optimizer).slots[id(inner)] = weakref.ref(tensorflow_variable(variable)), weakref.ref(inner)
    _release(_book(optimizer), tensorflow_variable(variable), inner)


def shares_of(optimizer: Any) -> Shares | None:
    """Who updates what, if the replicas share out the slots of the optimizer; None where there are none to share."""
    book = _books.get(optimizer)
    return book.shares if book is not None and book.slots else None


def replica_of(slot: Any) -> int | None:
    """The replica that keeps a slot; None where that is this one, or if replicas do not share it out."""
    return getattr(tensorflow_variable(slot), _REPLICA, None)


def is_updated_here(variable: Any, shares: Shares | None) -> bool:
    """Whether this rank updates a variable, given who shares the slots of its optimizer."""
    return not is_foreign(variable) and (shares is None or shares.other(variable) is None)


def release_foreign_slots() -> None:
    """Let go of slots whose variables turn out to be updated by other ranks, now that the model is cut."""
    for book in list(_books.values()):
        _settle(book)


def require_known(optimizer: Any, variables: Iterable[Any]) -> None:
    """Refuse an optimizer of the script that keeps what cannot be shared out.

    Args:
        optimizer: One that is built.
        variables: All that it keeps, but for those that every replica keeps alike.

    Raises:
        SMPUsageError: If one of them is no slot of a variable.
    """
    known = {id(slot()) for _, slot in _book(optimizer).slots.values()}
    for variable in variables:
        if id(tensorflow_variable(variable)) not in known:
            raise SMPUsageError(
                f"'shard_optimizer_state' is True, but {type(optimizer).__name__} keeps "
                f"{tensorflow_variable(variable).name} of shape {tuple(variable.shape)}, which is no slot of one "
                "variable, so that the replicas cannot share it out: make slots by add_variable_from_reference, or set "
                "'shard_optimizer_state' to False"
            )


def require_outside_a_step() -> None:
    """Refuse to update variables inside a step where replicas should stay equal, and warn elsewhere.

    Raises:
        SMPUsageError: If a step is being traced with `ddp`, as replicas exchange nothing there; or by tf_keras with
            several partitions, as its optimizers make what they keep while they are traced.
    """
    if tracer() is None or not is_initialized():
        return
    session = current()
    what = "apply_gradients was called inside an smp.step"
    better = "return the gradients from the step, and apply their accumulate() outside, once per batch"
    if session.config.ddp:
        raise SMPUsageError(f"{what}, and 'ddp' is True: replicas average no gradients there; {better}")
    if IS_TF_KERAS and session.config.partitions > 1:
        raise SMPUsageError(f"{what}: optimizers of tf_keras cannot update several partitions there; {better}")
    if session.config.microbatches > 1 and session.placement.rank == 0:
        _log.warning("smp: %s: it updates once per microbatch, each time by one of them; %s", what, better)


def _book(optimizer: Any) -> _Book:
    return _books.setdefault(optimizer, _Book())


def _settle(book: _Book) -> None:
    variables = [variable for variable in (ref() for ref in book.variables) if variable is not None]
    if is_initialized() and is_sharding(current()) and is_distributed(variables):
        book.shares = book.shares or Shares(current())
        book.shares.divide(variable for variable in variables if not is_foreign(variable))
    for key, (variable_ref, slot_ref) in list(book.slots.items()):
        variable, slot = variable_ref(), slot_ref()
        if variable is None or slot is None:
            del book.slots[key]
        else:
            _release(book, variable, slot)


def _release(book: _Book, variable: Any, slot: Any) -> None:
    if is_foreign(variable):
        make_foreign(slot, variable._smp_owner)
    elif book.shares is not None and (other := book.shares.other(variable)) is not None:
        make_foreign(slot, book.shares.name_of(other))
        setattr(slot, _REPLICA, other)
