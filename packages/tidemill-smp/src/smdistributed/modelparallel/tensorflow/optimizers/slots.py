"""Optimizer state: which rank keeps the slots of a variable, and how the replicas shard them.

The rank that holds a variable keeps its slots. With `shard_optimizer_state` each variable is owned by one replica, and
each replica owns about as many bytes as any other. The owner keeps the slots, updates the variable, and sends the new
value to the other replicas (an all-gather). Slots that another rank keeps take no memory here.
"""

import logging
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Gradient, Optimizer, Variable
from smdistributed.modelparallel.tensorflow.collectives import TensorGroup, data_parallel_group, model_parallel_group
from smdistributed.modelparallel.tensorflow.data_parallel import all_gather, average_owned
from smdistributed.modelparallel.tensorflow.keras_api import IS_KERAS_2
from smdistributed.modelparallel.tensorflow.marks import tracer
from smdistributed.modelparallel.tensorflow.session import RankSession, current, is_initialized
from smdistributed.modelparallel.tensorflow.variables import is_remote, make_remote, owner_of, tensorflow_variable

_log = logging.getLogger("smdistributed.modelparallel")
_REPLICA = "_smp_replica"
_predicates: list[Callable[[Any], bool]] = []
"""The predicate that `install` registered: whether a variable belongs to a distributed model."""


def install(is_of_model: Callable[[Any], bool]) -> None:
    """Register the predicate for variables of a partitioned model.

    Args:
        is_of_model: Gets a variable.
    """
    _predicates[:] = [is_of_model]


def is_distributed(variables: Iterable[Variable]) -> bool:
    """Return whether any of the variables belongs to a partitioned model.

    Args:
        variables: Of Keras or TensorFlow.
    """
    return any(map(_predicates[0], variables))


def is_sharding(session: RankSession) -> bool:
    """Return whether the replicas shard the optimizer state.

    Args:
        session: The session of this process.
    """
    return session.config.shard_optimizer_state and session.dp_group.size > 1


class Sharding:
    """The sharding plan of one optimizer: which replica owns which variable; the same on all replicas."""

    def __init__(self, session: RankSession) -> None:
        self.rank = session.dp_group.rank
        """This replica."""
        self._session = session
        self._owners: dict[str, int] = {}
        self._loads_bytes = [0] * session.dp_group.size

    def assign_owners(self, variables: Iterable[Variable]) -> None:
        """Assign variables without an owner: the largest first, each to the replica that owns the fewest bytes.

        Args:
            variables: The same on all replicas, in the same order.
        """
        fresh = [inner for inner in map(tensorflow_variable, variables) if inner._unique_id not in self._owners]
        sizes = [inner.shape.num_elements() * inner.dtype.size for inner in fresh]
        for place in sorted(range(len(fresh)), key=lambda place: (-sizes[place], place)):
            replica = min(range(len(self._loads_bytes)), key=lambda replica: (self._loads_bytes[replica], replica))
            self._owners[fresh[place]._unique_id] = replica
            self._loads_bytes[replica] += sizes[place]

    def owner(self, variable: Variable) -> int | None:
        """Return the replica that owns a variable; None for a variable of another partition.

        Args:
            variable: Of Keras or TensorFlow.
        """
        return self._owners.get(tensorflow_variable(variable)._unique_id)

    def other_owner(self, variable: Variable) -> int | None:
        """Return the replica that owns a variable; None if this replica does.

        Args:
            variable: Of Keras or TensorFlow.
        """
        owner = self.owner(variable)
        return None if owner == self.rank else owner

    def average_owned(self, gradients: Sequence[Gradient | None], variables: Iterable[Variable]) -> list[Any]:
        """Average over the replicas the gradients of variables that this one owns; return the others unchanged.

        Args:
            gradients: Tensors, IndexedSlices or None.

        Returns:
            As many gradients.
        """
        return average_owned(gradients, [self.owner(variable) for variable in variables], self._session)

    def all_gather(self, variables: Iterable[Variable]) -> None:
        """Assign to each variable its owner's value; collective over the replicas.

        Args:
            variables: Variables of any shapes; remote ones are skipped.
        """
        here = [tensorflow_variable(variable) for variable in variables if not is_remote(variable)]
        pairs = [(variable, owner) for variable in here if (owner := self.owner(variable)) is not None]
        all_gather([variable for variable, _ in pairs], [owner for _, owner in pairs], self._session)

    def name_of(self, replica: int) -> str:
        """Return what error messages call the rank of a replica that holds the same partition as this one.

        Args:
            replica: From 0.
        """
        return self._session.world.name_of(self._session.dp_group.ranks[replica])


def shared_session(variables: Sequence[Variable]) -> RankSession | None:
    """Return the session if updating the variables involves other ranks, else None; inside a step it does not.

    Args:
        variables: Of Keras or TensorFlow.
    """
    if not is_initialized() or tracer() is not None:
        return None
    session = current()
    if session.config.partitions == 1 and not session.config.ddp:
        return None
    return session if is_distributed(variables) else None


def groups_of_others(session: RankSession, sharding: Sharding | None) -> list[TensorGroup]:
    """Return the groups of ranks with the optimizer's other gradients: those that this rank does not have.

    Args:
        sharding: Plan of the optimizer; None without one.
    """
    replicas = [] if sharding is None else [data_parallel_group(session)]
    return replicas if session.config.partitions == 1 else [*replicas, model_parallel_group(session)]


@dataclass
class _OptimizerState:
    """State tracked per optimizer: its variables, their slots, and the sharding plan, if any."""

    variables: list[weakref.ref[Variable]] = field(default_factory=list)
    """The variables that the optimizer was built with."""
    slots: dict[int, tuple[weakref.ref[Any], weakref.ref[Any]]] = field(default_factory=dict)
    """id of a slot -> (variable, slot)."""
    sharding: Sharding | None = None


_states: weakref.WeakKeyDictionary[Any, _OptimizerState] = weakref.WeakKeyDictionary()


def prepare(optimizer: Optimizer, variables: Sequence[Variable]) -> None:
    """Decide, as far as known, which rank keeps the slots of `variables`, before the slots are created.

    Args:
        optimizer: An optimizer of Keras.
        variables: The variables that it will train.
    """
    state = _state_of(optimizer)
    known = {id(ref()) for ref in state.variables}
    inner = [tensorflow_variable(variable) for variable in variables]
    state.variables += [weakref.ref(variable) for variable in inner if id(variable) not in known]
    _place_slots(state)


def is_kept_here(optimizer: Optimizer, variable: Variable) -> bool:
    """Return whether this rank keeps the slots of a variable.

    Args:
        optimizer: An optimizer of Keras.
        variable: Of Keras or TensorFlow.
    """
    return is_updated_here(variable, _state_of(optimizer).sharding)


def add(optimizer: Optimizer, variable: Variable, slot: Variable) -> None:
    """Record a new slot; free its memory if another rank keeps it.

    Args:
        optimizer: An optimizer of Keras.
        variable: The trained variable.
    """
    inner = tensorflow_variable(slot)
    _state_of(optimizer).slots[id(inner)] = weakref.ref(tensorflow_variable(variable)), weakref.ref(inner)
    _release(_state_of(optimizer), tensorflow_variable(variable), inner)


def sharding_of(optimizer: Optimizer) -> Sharding | None:
    """Return the sharding plan of an optimizer that has slots; None if its replicas do not shard them.

    Args:
        optimizer: An optimizer of Keras.
    """
    state = _states.get(optimizer)
    return state.sharding if state is not None and state.slots else None


def replica_of(slot: Variable) -> int | None:
    """Return the replica that keeps a slot; None if this replica does, or if the replicas do not shard the slot."""
    return getattr(tensorflow_variable(slot), _REPLICA, None)


def is_updated_here(variable: Variable, sharding: Sharding | None) -> bool:
    """Return whether this rank updates a variable, given the sharding plan of its optimizer.

    Args:
        variable: Of Keras or TensorFlow.
        sharding: Plan of the optimizer; None without one.
    """
    return not is_remote(variable) and (sharding is None or sharding.other_owner(variable) is None)


def release_remote_slots() -> None:
    """Free the slots that other ranks keep, after the model is partitioned."""
    for state in list(_states.values()):
        _place_slots(state)


def require_known(optimizer: Optimizer, variables: Iterable[Variable]) -> None:
    """Refuse a custom optimizer with state that cannot be sharded.

    Args:
        optimizer: A built optimizer.
        variables: Its variables, except those that every replica keeps alike.

    Raises:
        SMPUsageError: If one of them is not a slot of a variable.
    """
    known = {id(slot()) for _, slot in _state_of(optimizer).slots.values()}
    for variable in variables:
        if id(tensorflow_variable(variable)) not in known:
            raise SMPUsageError(
                f"'shard_optimizer_state' is True, but {type(optimizer).__name__} keeps "
                f"{tensorflow_variable(variable).name} of shape {tuple(variable.shape)}, which is not a slot of one "
                "variable, so the replicas cannot shard it: create slots with add_variable_from_reference, or set "
                "'shard_optimizer_state' to False"
            )


def require_outside_a_step() -> None:
    """Refuse updates of variables inside a step if they would be wrong, and warn about them otherwise.

    Raises:
        SMPUsageError: If a step is being traced with `ddp`, because replicas exchange nothing inside a step; or with
            Keras 2 and several partitions, because optimizers of Keras 2 create their slots during tracing.
    """
    if tracer() is None or not is_initialized():
        return
    session = current()
    what = "apply_gradients was called inside an smp.step"
    better = "return the gradients from the step, and apply their accumulate() outside, once per batch"
    if session.config.ddp:
        raise SMPUsageError(f"{what}, and 'ddp' is True: replicas average no gradients there; {better}")
    if IS_KERAS_2 and session.config.partitions > 1:
        raise SMPUsageError(f"{what}: optimizers of Keras 2 cannot update several partitions there; {better}")
    if session.config.microbatches > 1 and session.placement.rank == 0:
        _log.warning("smp: %s: it updates once per microbatch, each time by one of them; %s", what, better)


def _state_of(optimizer: Optimizer) -> _OptimizerState:
    return _states.setdefault(optimizer, _OptimizerState())


def _place_slots(state: _OptimizerState) -> None:
    variables = [variable for variable in (ref() for ref in state.variables) if variable is not None]
    if is_initialized() and is_sharding(current()) and is_distributed(variables):
        state.sharding = state.sharding or Sharding(current())
        state.sharding.assign_owners(variable for variable in variables if not is_remote(variable))
    for key, (variable_ref, slot_ref) in list(state.slots.items()):
        variable, slot = variable_ref(), slot_ref()
        if variable is None or slot is None:
            del state.slots[key]
        else:
            _release(state, variable, slot)


def _release(state: _OptimizerState, variable: Variable, slot: Variable) -> None:
    if is_remote(variable):
        make_remote(slot, owner_of(variable))
    elif state.sharding is not None and (owner := state.sharding.other_owner(variable)) is not None:
        make_remote(slot, state.sharding.name_of(owner))
        setattr(slot, _REPLICA, owner)
