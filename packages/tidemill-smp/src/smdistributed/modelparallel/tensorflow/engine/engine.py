"""The engine of one process: makes plans together with the other ranks of the replica, and settles the variables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPPlanMismatchError, SMPUsageError
from smdistributed.modelparallel.tensorflow.data_parallel import make_equal
from smdistributed.modelparallel.tensorflow.engine.assign import ALL, Assignment, assign
from smdistributed.modelparallel.tensorflow.engine.batch import Batch
from smdistributed.modelparallel.tensorflow.engine.loose import loose_variables
from smdistributed.modelparallel.tensorflow.engine.nodes import Output
from smdistributed.modelparallel.tensorflow.engine.optimizer_hooks import release_foreign_slots
from smdistributed.modelparallel.tensorflow.engine.plan import Plan, make_plan
from smdistributed.modelparallel.tensorflow.engine.profile import Times
from smdistributed.modelparallel.tensorflow.engine.trace import Trace, trace
from smdistributed.modelparallel.tensorflow.engine.units import unit_graph
from smdistributed.modelparallel.tensorflow.engine.variables import (
    Deferred,
    dropping_foreign_values,
    is_foreign,
    make_foreign,
    seeds_among,
    tensorflow_variable,
    variables_of,
)
from smdistributed.modelparallel.tensorflow.partitioning.automatic import decide, follow
from smdistributed.modelparallel.tensorflow.partitioning.context import partition_of
from smdistributed.modelparallel.tensorflow.session import Session, current

__all__ = ["Engine", "engine"]

log = logging.getLogger("smdistributed.modelparallel")

Hook = Callable[[], Any]


class Engine:
    """What the steps of one process share."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.owners: dict[int, int] = {}
        """id of a tf.Variable -> the partition that holds it, or `ALL`."""
        self.settled: list[Any] = []
        """The variables of `owners`, kept alive; their order is that of the models."""
        self._loose: list[Any] = []
        """Those of `settled` that no model keeps."""
        self.is_partitioned = False
        self.decisions: dict[str, int] = {}
        """Unit -> partition, as the automatic cut decided."""
        self.times: dict[str, Times] = {}
        """Unit -> what profiling measured."""
        self._decided: dict[int, Any] = {}
        self._num_plans = 0
        self.deferred = Deferred()
        self._hooks: list[Hook] = []
        self._later_hooks: list[Hook] = []

    def after_partition(self, hook: Hook, *, and_later: bool = False) -> None:
        """Run `hook` eagerly where the model is cut and its variables are there; at once if that is past.

        Args:
            hook: What to run.
            and_later: Whether it is run again where a later step brings variables, as of a second model.
        """
        if self.is_partitioned:
            self._run(hook)
        else:
            self._hooks.append(hook)
        if and_later:
            self._later_hooks.append(hook)

    def holds_any(self, variables: Iterable[Any]) -> bool:
        """Whether one of the variables is known to belong to a distributed model."""
        return any(id(tensorflow_variable(variable)) in self.owners for variable in variables)

    def what_lacks_values(self, variables: Iterable[Any]) -> str:
        """Say which of the variables were built on paper and have no values before a step; nothing if none were."""
        asked = {id(tensorflow_variable(variable)) for variable in variables}
        waiting = [variable for variable, _ in self.deferred.waiting if id(tensorflow_variable(variable)) in asked]
        names = [getattr(variable, "path", variable.name) for variable in waiting]
        if not names:
            return ""
        return (
            f"{len(names)} variables have no values yet ({', '.join(names[:3])}{', ...' if names[3:] else ''}): the "
            "model was traced to be planned or measured, and gets them in the first smp.step; run one step before"
        )

    def plan(
        self,
        body: Callable[..., Any],
        specs: Sequence[Any],
        call: Callable[[Callable[..., Any], list[Any]], Any],
        *,
        num_microbatches: int,
        batch: Batch,
    ) -> Plan:
        """Trace a step and plan it; collective over the replica.

        Args:
            body: The user's function.
            specs: See `trace`.
            call: See `trace`.
            num_microbatches: B.
            batch: How the leaves were made of a batch.

        Raises:
            SMPPlanMismatchError: If another rank traced something else.
        """
        config, placement = self.session.config, self.session.placement
        with self.deferred.collecting():
            traced = trace(body, specs, call=call, automatic=config.auto_partition, batch=batch)
        kept = variables_of(traced.tracer.models)
        ids = set(map(id, kept))
        variables = [*kept, *(one for one in self._loose if id(one) not in ids)]  # a later model may keep one
        assignment = self._assign(traced, variables)
        loose = loose_variables(traced, assignment, variables)
        self._loose += loose
        variables += loose
        self._warn_of_shared(traced, assignment, variables)
        self._num_plans += 1
        plan = make_plan(
            traced,
            assignment,
            number=self._num_plans,
            partition=placement.mp_rank,
            num_partitions=config.partitions,
            num_microbatches=num_microbatches,
            pipeline=config.pipeline,
            active_microbatches=config.active_microbatches,
            recompute=frozenset(config.recompute),
        )
        self._compare(plan)
        self._settle(traced, assignment, variables)
        traced.forget_handles()
        return plan

    def _run(self, hook: Hook) -> None:
        with tf.init_scope(), dropping_foreign_values():
            hook()

    def _assign(self, traced: Trace, variables: Sequence[Any]) -> Assignment:
        by_handle = {id(variable.handle): variable for variable in variables}
        settled = {
            output: self.owners[id(by_handle[id(external)])]
            for output, external in traced.captures.items()
            if id(external) in by_handle and id(by_handle[id(external)]) in self.owners
        }
        return assign(
            traced.nodes,
            units=traced.tracer.units,
            partitions=self._partitions(traced, variables),
            gradients={name: _output(traced, handle) for name, handle in traced.tracer.gradients.items()},
            settled=settled,
        )

    def _warn_of_shared(self, traced: Trace, assignment: Assignment, variables: Sequence[Any]) -> None:
        by_handle = {id(variable.handle): variable for variable in variables}
        for output, users in assignment.users.items():
            variable = by_handle.get(id(traced.captures.get(output)))
            if len(users) > 1 and variable is not None and id(variable) not in self.owners:
                log.warning(
                    "smp: %s is used in the partitions %s: its value (%.1f MB) travels from partition %d to the others "
                    "with each step, and its gradients come back with each microbatch; use it "
                    "in one partition if you can",
                    variable.name,
                    ", ".join(map(str, sorted(users))),
                    variable.shape.num_elements() * variable.dtype.size / 1e6,
                    assignment.handles[output],
                )

    def _partitions(self, traced: Trace, variables: Sequence[Any]) -> Mapping[str, int]:
        config = self.session.config
        manual = {unit: partition_of(unit) for unit in traced.tracer.scopes if unit.startswith("partition:")}
        for model in traced.tracer.models:
            if id(model) in self._decided or not (config.auto_partition or model._smp_rules is not None):
                continue
            self._decided[id(model)] = model
            graph = unit_graph(traced, variables, self.times)
            if model._smp_rules is None:
                self.decisions |= decide(graph, config, rank=self.session.placement.rank)
            else:
                self.decisions |= follow(graph, config, model._smp_rules)
        return manual | self.decisions

    def _compare(self, plan: Plan) -> None:
        """Stop where the ranks of the replica do not have one and the same plan."""
        if self.session.config.partitions == 1:
            return
        with tf.init_scope():
            digests = self.session.mp_group.allgather_objects((plan.number, plan.digest()))
            if len(set(digests)) == 1:
                return
            prints = self.session.mp_group.allgather_objects(plan.fingerprint())
        raise SMPPlanMismatchError(_first_difference(prints))

    def _settle(self, traced: Trace, assignment: Assignment, variables: Sequence[Any]) -> None:
        """Give each variable of the models to its owner, and initialize those that are held here.

        A variable that no op of the trace uses, as the seed of dropout in a step that evaluates, is on all ranks until
        a step uses it.
        """
        here = self.session.placement.mp_rank
        owners = self._owners_by_handle(traced, assignment)
        fresh = [v for v in variables if id(v) not in self.owners and id(v.handle) in owners]
        for variable in fresh:
            self.owners[id(variable)] = owners[id(variable.handle)]
        self.settled += fresh
        self.deferred.initialize(lambda v: self.owners.get(id(tensorflow_variable(v)), ALL) in (ALL, here))
        for variable in self.settled:
            owner = self.owners[id(variable)]
            if owner not in (ALL, here) and not is_foreign(variable):
                rank = self.session.placement.rank_at(owner, self.session.placement.dp_rank)
                make_foreign(variable, f"rank {rank} (partition {owner})")
        release_foreign_slots()
        if traced.tracer.models:
            hooks = self._later_hooks.copy() if self.is_partitioned and fresh else self._hooks.copy()
            self.is_partitioned = True
            self._hooks.clear()
            for hook in hooks:
                self._run(hook)
        # Each rank has drawn its own value for a weight that the step uses outside all partitions.
        common = [variable for variable in fresh if self.owners[id(variable)] == ALL]
        self._run(lambda: make_equal(common, self.session.mp_group))
        if self.session.config.ddp:
            seeds = seeds_among(traced.tracer.models)  # replicas see different data, and draw different masks
            held = [variable for variable in fresh if not is_foreign(variable) and id(variable) not in seeds]
            self._run(lambda: make_equal(held, self.session.dp_group))

    def _owners_by_handle(self, traced: Trace, assignment: Assignment) -> dict[int, int]:
        return {
            id(external): assignment.handles.get(output, ALL)
            for output, external in traced.captures.items()
            if external.dtype == tf.resource
        }


def engine() -> Engine:
    """The engine of this process.

    Raises:
        SMPNotInitializedError: If `smp.init()` has not been called.
    """
    global _engine
    session = current()
    if _engine is None or _engine.session is not session:
        _engine = Engine(session)
    return _engine


_engine: Engine | None = None


def _output(traced: Trace, tensor: Any) -> Output:
    for output, external in traced.captures.items():
        if tensor is external or traced.nodes[output[0]].name == tensor.op.name:
            return output
    raise SMPUsageError(f"a gradient was taken with respect to {tensor}, which is no variable of this step")


def _first_difference(prints: Sequence[Sequence[str]]) -> str:
    longest = max(map(len, prints))
    for line in range(longest):
        seen = {rank: lines[line] if line < len(lines) else "nothing more" for rank, lines in enumerate(prints)}
        if len(set(seen.values())) > 1:
            said = "; ".join(f"partition {rank}: {text}" for rank, text in seen.items())
            break
    else:
        said = "the ranks have traced different numbers of steps"
    return (
        f"the ranks of this replica traced different steps. First difference: {said}. All ranks must run the same "
        "script with the same arguments, batch shapes and Python-side random choices"
    )
