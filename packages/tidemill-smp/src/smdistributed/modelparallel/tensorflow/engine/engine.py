"""The engine of one process: plans steps together with the replica's other ranks, and assigns variables to ranks."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPPlanMismatchError, SMPUsageError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Tensor, TypeSpec, Variable
from smdistributed.modelparallel.tensorflow.data_parallel import make_equal
from smdistributed.modelparallel.tensorflow.engine.assign import ALL, PartitionAssignment, assign
from smdistributed.modelparallel.tensorflow.engine.batch import Batch
from smdistributed.modelparallel.tensorflow.engine.decisions import PartitionDecisions
from smdistributed.modelparallel.tensorflow.engine.nodes import Output
from smdistributed.modelparallel.tensorflow.engine.plan import Plan, make_plan
from smdistributed.modelparallel.tensorflow.engine.trace import Trace, trace
from smdistributed.modelparallel.tensorflow.engine.untracked import untracked_variables
from smdistributed.modelparallel.tensorflow.optimizers.slots import release_remote_slots
from smdistributed.modelparallel.tensorflow.progress import doing
from smdistributed.modelparallel.tensorflow.session import RankSession, current
from smdistributed.modelparallel.tensorflow.variables import (
    Deferred,
    dropping_remote_values,
    is_remote,
    make_remote,
    seeds_among,
    tensorflow_variable,
    variables_of,
)

log = logging.getLogger("smdistributed.modelparallel")

Hook = Callable[[], Any]


class PartitionEngine:
    """State that the steps of one process share."""

    def __init__(self, session: RankSession) -> None:
        self.session = session
        self.owners: dict[int, int] = {}
        """id of a tf.Variable -> the partition that holds the variable, or `ALL`."""
        self.placed: list[Any] = []
        """The variables of `owners`, kept alive, in the order of the models."""
        self._untracked: list[Any] = []
        """The variables of `placed` that belong to no model."""
        self.is_partitioned = False
        self._num_plans = 0
        self.deferred = Deferred()
        self.decided = PartitionDecisions(session, self.deferred)
        self._hooks: list[Hook] = []
        self._later_hooks: list[Hook] = []

    def after_partition(self, hook: Hook, *, and_later: bool = False) -> None:
        """Run `hook` eagerly after the model is partitioned and has its variables; immediately if it already is.

        Args:
            and_later: Whether to run it again if a later step adds variables, such as those of a second model.
        """
        if self.is_partitioned:
            self._run(hook)
        else:
            self._hooks.append(hook)
        if and_later:
            self._later_hooks.append(hook)

    def holds_any(self, variables: Iterable[Variable]) -> bool:
        """Return whether one of the variables is known to belong to a distributed model.

        Args:
            variables: Of Keras or TensorFlow.
        """
        return any(id(tensorflow_variable(variable)) in self.owners for variable in variables)

    def what_lacks_values(self, variables: Iterable[Variable]) -> str:
        """Describe the variables that were created symbolically and have no value until a step; empty if none.

        Args:
            variables: Of Keras or TensorFlow.

        Returns:
            A sentence that begins with their number.
        """
        asked = {id(tensorflow_variable(variable)) for variable in variables}
        waiting = [variable for variable, _ in self.deferred.waiting if id(tensorflow_variable(variable)) in asked]
        names = [getattr(variable, "path", variable.name) for variable in waiting]
        if not names:
            return ""
        return (
            f"{len(names)} variables have no values yet ({', '.join(names[:3])}{', ...' if names[3:] else ''}): the "
            "model was only traced, for planning or measuring, and the first smp.step sets them; run one step before"
        )

    def plan(
        self,
        body: Callable[..., Any],
        specs: Sequence[TypeSpec | None],
        call: Callable[[Callable[..., Any], list[Any]], Any],
        *,
        num_microbatches: int,
        batch: Batch,
        leaves: Sequence[Tensor],
    ) -> Plan:
        """Trace a step and plan it; collective over the replica.

        Args:
            body: The user's function.
            specs: See `trace`.
            call: See `trace`.
            num_microbatches: B.
            batch: How the leaves were split from a batch.
            leaves: The tensors of the first microbatch, on which layers are measured if their values are known.

        Raises:
            SMPPlanMismatchError: If another rank traced a different step.
        """
        config = self.session.config
        doing("tracing the step for one microbatch")
        with self.deferred.collecting():
            traced = trace(body, specs, call=call, automatic=config.auto_partition, batch=batch)
        kept = variables_of(traced.tracer.models)
        ids = set(map(id, kept))
        variables = [*kept, *(one for one in self._untracked if id(one) not in ids)]  # a later model may track one
        assignment = self._assign(traced, variables, leaves)
        untracked = untracked_variables(traced, assignment, variables)
        self._untracked += untracked
        variables += untracked
        self._warn_of_shared(traced, assignment, variables)
        plan = self._make_plan(traced, assignment, num_microbatches)
        if traced.sums:
            plan = replace(plan, ahead=self._make_plan(traced.of_summands(), assignment, num_microbatches))
        doing("comparing the plans of all ranks")
        self._compare(plan)
        doing("creating the variables of this rank")
        self._place(traced, assignment, variables)
        traced.forget_handles()
        return plan

    def _make_plan(self, traced: Trace, assignment: PartitionAssignment, num_microbatches: int) -> Plan:
        config = self.session.config
        self._num_plans += 1
        doing("building the segments of this rank")
        return make_plan(
            traced,
            assignment,
            number=self._num_plans,
            partition=self.session.placement.mp_rank,
            num_partitions=config.partitions,
            num_microbatches=num_microbatches,
            pipeline=config.pipeline,
            active_microbatches=config.active_microbatches,
            recompute=frozenset(config.recompute),
        )

    def _run(self, hook: Hook) -> None:
        with tf.init_scope(), dropping_remote_values():
            hook()

    def _assign(self, traced: Trace, variables: Sequence[Variable], leaves: Sequence[Tensor]) -> PartitionAssignment:
        by_handle = {id(variable.handle): variable for variable in variables}
        placed = {
            output: self.owners[id(by_handle[id(external)])]
            for output, external in traced.captures.items()
            if id(external) in by_handle and id(by_handle[id(external)]) in self.owners
        }
        return assign(
            traced.nodes,
            units=traced.tracer.units,
            partitions=self.decided.partitions(traced, variables, leaves),
            gradients={name: _output(traced, handle) for name, handle in traced.tracer.gradients.items()},
            placed=placed,
        )

    def _warn_of_shared(self, traced: Trace, assignment: PartitionAssignment, variables: Sequence[Variable]) -> None:
        by_handle = {id(variable.handle): variable for variable in variables}
        for output, users in assignment.users.items():
            variable = by_handle.get(id(traced.captures.get(output)))
            if len(users) > 1 and variable is not None and id(variable) not in self.owners:
                log.warning(
                    "smp: %s is used in the partitions %s: its value (%.1f MB) is sent from partition %d to the others "
                    "with each step, and its gradients are sent back with each microbatch; use it "
                    "in one partition if you can",
                    variable.name,
                    ", ".join(map(str, sorted(users))),
                    variable.shape.num_elements() * variable.dtype.size / 1e6,
                    assignment.handles[output],
                )

    def _compare(self, plan: Plan) -> None:
        """Raise `SMPPlanMismatchError` if the ranks of the replica have different plans."""
        if self.session.config.partitions == 1:
            return
        with tf.init_scope():
            digests = self.session.mp_group.allgather_objects((plan.number, plan.digest()))
            if len(set(digests)) == 1:
                return
            prints = self.session.mp_group.allgather_objects(plan.fingerprint())
        raise SMPPlanMismatchError(_first_difference(prints))

    def _place(self, traced: Trace, assignment: PartitionAssignment, variables: Sequence[Variable]) -> None:
        """Assign each variable of the models to its owner, and initialize the variables that this rank holds.

        A variable that no op of the trace uses, such as the seed of dropout in an evaluation step, is on all ranks
        until a step uses it.
        """
        here = self.session.placement.mp_rank
        owners = self._owners_by_handle(traced, assignment)
        fresh = [v for v in variables if id(v) not in self.owners and id(v.handle) in owners]
        for variable in fresh:
            self.owners[id(variable)] = owners[id(variable.handle)]
        self.placed += fresh
        self.deferred.initialize(lambda v: self.owners.get(id(tensorflow_variable(v)), ALL) in (ALL, here))
        for variable in self.placed:
            owner = self.owners[id(variable)]
            if owner not in (ALL, here) and not is_remote(variable):
                rank = self.session.placement.rank_at(owner, self.session.placement.dp_rank)
                make_remote(variable, f"rank {rank} (partition {owner})")
        release_remote_slots()
        if traced.tracer.models:
            hooks = self._later_hooks.copy() if self.is_partitioned and fresh else self._hooks.copy()
            self.is_partitioned = True
            self._hooks.clear()
            for hook in hooks:
                self._run(hook)
        # Each rank has drawn its own initial value for a weight that the step uses outside all partitions.
        common = [variable for variable in fresh if self.owners[id(variable)] == ALL]
        self._run(lambda: make_equal(common, self.session.mp_group))
        if self.session.config.ddp:
            seeds = seeds_among(traced.tracer.models)  # not made equal: each replica draws its own masks
            held = [variable for variable in fresh if not is_remote(variable) and id(variable) not in seeds]
            self._run(lambda: make_equal(held, self.session.dp_group))

    def _owners_by_handle(self, traced: Trace, assignment: PartitionAssignment) -> dict[int, int]:
        return {
            id(external): assignment.handles.get(output, ALL)
            for output, external in traced.captures.items()
            if external.dtype == tf.resource
        }


def engine() -> PartitionEngine:
    """Return the engine of this process.

    Raises:
        SMPNotInitializedError: If `smp.init()` has not been called.
    """
    global _engine
    session = current()
    if _engine is None or _engine.session is not session:
        _engine = PartitionEngine(session)
    return _engine


_engine: PartitionEngine | None = None


def _output(traced: Trace, tensor: Tensor) -> Output:
    for output, external in traced.captures.items():
        if tensor is external or traced.nodes[output[0]].name == tensor.op.name:
            return output
    raise SMPUsageError(f"a gradient was taken with respect to {tensor}, which is not a variable of this step")


def _first_difference(prints: Sequence[Sequence[str]]) -> str:
    longest = max(map(len, prints))
    for line in range(longest):
        seen = {rank: lines[line] if line < len(lines) else "nothing more" for rank, lines in enumerate(prints)}
        if len(set(seen.values())) > 1:
            difference = "; ".join(f"partition {rank}: {text}" for rank, text in seen.items())
            break
    else:
        difference = "the ranks have traced different numbers of steps"
    return (
        f"the ranks of this replica traced different steps. First difference: {difference}. All ranks must run the "
        "same script with the same arguments, batch shapes and Python-side random choices"
    )
