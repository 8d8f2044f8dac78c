"""Restores saved values into live objects: existing ones immediately, others when they are created.

As in `tf.train.Checkpoint`, the saved object graph and the live one are traversed together, by the names of the edges.
Unlike there, the values may be in the bundles of several ranks, and variables of other ranks are skipped. Each object
is restored once, so that later changes by the script are kept.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Variable
from smdistributed.modelparallel.tensorflow.checkpoint.agreement import RankAgreement
from smdistributed.modelparallel.tensorflow.checkpoint.bundles import Bundle
from smdistributed.modelparallel.tensorflow.checkpoint.children import all_listed, graph_of, objects_below
from smdistributed.modelparallel.tensorflow.checkpoint.optimizers import (
    after_build,
    awaits_slots,
    prepare,
    slot_of,
)
from smdistributed.modelparallel.tensorflow.checkpoint.saved import Saved
from smdistributed.modelparallel.tensorflow.engine.engine import engine
from smdistributed.modelparallel.tensorflow.keras_api import IS_KERAS_2, is_keras_variable
from smdistributed.modelparallel.tensorflow.marks import tracer
from smdistributed.modelparallel.tensorflow.variables import is_remote, tensorflow_variable
from tensorflow.python.trackable import trackable_utils

_log = logging.getLogger(__name__)


class Restoration:
    """The restoration of one checkpoint into live objects."""

    def __init__(self, root: tf.train.Checkpoint, saved: Saved, ranks: RankAgreement) -> None:
        """Prepare to restore the objects reachable from `root`.

        Args:
            root: A tf.train.Checkpoint, with or without a root object.
            saved: The checkpoint to restore.
        """
        self._checkpoint = root
        self._saved = saved
        self._ranks = ranks
        self._done: dict[int, Any] = {}
        self._awaited: dict[int, Any] = {}
        self._reported: dict[int, Any] = {}
        self._is_cancelled = False

    def begin(self) -> None:
        """Restore the objects that exist. Collective.

        Raises:
            SMPCheckpointError: If a value cannot be read, or does not match its variable, on any rank.
        """
        self._run_on_all(self._apply)

    def proceed(self) -> None:
        """Restore further objects after the model is partitioned, and log variables without a saved value. Collective.

        Raises:
            SMPCheckpointError: If a value cannot be read, does not match its variable, or is on another machine, on any
                rank.
        """
        self._run_on_all(self._apply_and_report)

    def cancel(self) -> None:
        """Stop restoring, because another checkpoint is restored instead."""
        self._is_cancelled = True
        for kept in (self._done, self._awaited, self._reported):
            kept.clear()
        self._saved.close()

    def _run_on_all(self, function: Callable[[], None]) -> None:
        if not self._is_cancelled:
            self._ranks.together(f"restore {self._saved.name}", function)

    def _apply(self) -> None:
        with tf.init_scope(), all_listed():
            for live in objects_below(self._checkpoint):
                prepare(live)
            for bundle, graph in self._saved.bundles():
                for node, live in self._matches(graph):
                    self._restore(bundle, node, live)
        self._await_optimizers()

    def _apply_and_report(self) -> None:
        self._apply()
        with all_listed():
            found = [live for live in objects_below(self._checkpoint) if self._lacks(live)]
        self._reported |= {id(live): live for live in found}
        lacking = [_name(live) for live in found]
        if not lacking:
            return
        listed = ", ".join(lacking[:5]) + (f" and {len(lacking) - 5} more" if len(lacking) > 5 else "")
        if self._saved.missing:
            raise SMPCheckpointError(
                f"cannot restore {listed} from {self._saved.name}: this rank's file system has no "
                f"{self._saved.missing[0]}.index. If the model is cut differently than when it was saved, every rank "
                "needs the files of all ranks: use a shared directory, or copy them"
            )
        later = " until the optimizer is applied, which may bring them" if self._awaited else ""
        _log.warning(
            "rank %s: %s has no value for %s, which keep theirs%s", self._ranks.rank, self._saved.name, listed, later
        )

    def _matches(self, graph: Any) -> Iterator[tuple[Any, Any]]:
        """Yield saved nodes with the matching live objects."""
        matched: dict[int, Any] = {0: graph_of(self._checkpoint).root}
        queue = [0]
        while queue:
            number = queue.pop(0)
            live, node = matched[number], graph.nodes[number]
            yield node, live
            children = self._children(live)
            for child in node.children:
                if child.node_id not in matched and child.local_name in children:
                    matched[child.node_id] = children[child.local_name]
                    queue.append(child.node_id)
        for number, live in matched.items():
            for edge in graph.nodes[number].slot_variables:
                variable = matched.get(edge.original_variable_node_id)
                slot = slot_of(live, variable, edge.slot_name)
                if slot is not None:
                    yield graph.nodes[edge.slot_variable_node_id], slot

    def _restore(self, bundle: Bundle, node: Any, live: Any) -> None:
        if not node.attributes or id(live) in self._done or not _can_restore(live):
            return
        tensors = {}
        for attribute in node.attributes:
            name = trackable_utils.extract_local_name(attribute.checkpoint_key)
            tensors[name] = bundle.read(attribute.checkpoint_key)
        try:
            live._restore_from_tensors(tensors)
        except (ValueError, TypeError, KeyError, NotImplementedError, tf.errors.OpError) as error:
            raise SMPCheckpointError(
                f"cannot restore {_name(live)} from {node.attributes[0].checkpoint_key} in "
                f"{bundle.prefix}: {str(error).strip() or type(error).__name__}. Build the model as it was built when "
                "the checkpoint was saved"
            ) from error
        self._done[id(live)] = live

    def _children(self, live: object) -> dict[str, Any]:
        return {child.name: child.ref for child in graph_of(self._checkpoint).list_children(live)}

    def _lacks(self, live: object) -> bool:
        is_variable = isinstance(live, tf.Variable) or is_keras_variable(live)
        return is_variable and id(live) not in self._done and id(live) not in self._reported and _can_restore(live)

    def _await_optimizers(self) -> None:
        """Restore the slots of Keras's optimizers when they are created, which is at the first update."""
        for live in objects_below(self._checkpoint):
            if awaits_slots(live) and id(live) not in self._awaited:
                self._awaited[id(live)] = live
                after_build(live, self._complete)

    def _complete(self, variables: Sequence[Variable]) -> None:
        if tracer() is not None:  # inside a step the slots are restored once they are assigned to ranks
            return
        if engine().holds_any(variables):
            self._run_on_all(self._apply)
        elif not self._is_cancelled:  # not collective: the optimizer may exist on this rank only
            self._apply()


def _can_restore(live: Any) -> bool:
    if not IS_KERAS_2 and is_keras_variable(live) and live._value is None:
        return False
    return not is_remote(live)


def _name(live: object) -> str:
    inner = tensorflow_variable(live)
    return str(getattr(live, "path", None) or getattr(inner, "name", None) or type(live).__name__)
