"""Bring saved values back into live objects: into those that are here, and later into those that come to be.

The graph of objects that was saved and the live one are walked together, by the names of the edges, as
`tf.train.Checkpoint` does. Unlike there, the values may lie in the bundles of several ranks, and what another rank
holds is passed over. Each object is restored once: what the script does to it afterwards stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError
from smdistributed.modelparallel.tensorflow.checkpoint.agreement import Agreement
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
from smdistributed.modelparallel.tensorflow.engine.variables import is_foreign, tensorflow_variable
from smdistributed.modelparallel.tensorflow.keras_api import IS_TF_KERAS, is_keras_variable
from smdistributed.modelparallel.tensorflow.marks import tracer
from tensorflow.python.trackable import trackable_utils

__all__ = ["Restoration"]

_log = logging.getLogger(__name__)


class Restoration:
    """One checkpoint on its way back into live objects."""

    def __init__(self, root: Any, saved: Saved, ranks: Agreement) -> None:
        """Restore into what hangs on `root`.

        Args:
            root: A tf.train.Checkpoint; with or without a root object of its own.
            saved: What was saved.
            ranks: Who restores.
        """
        self._checkpoint = root
        self._saved = saved
        self._ranks = ranks
        self._done: dict[int, Any] = {}
        self._awaited: dict[int, Any] = {}
        self._told: dict[int, Any] = {}
        self._is_cancelled = False

    def begin(self) -> None:
        """Restore what is here; on all ranks.

        Raises:
            SMPCheckpointError: If a value cannot be read, or does not fit, on any rank.
        """
        self._together(self._apply)

    def proceed(self) -> None:
        """Restore what is here by now, where the model is cut; on all ranks. Tell what the checkpoint has no value for.

        Raises:
            SMPCheckpointError: If a value cannot be read, does not fit, or lies on another machine, on any rank.
        """
        self._together(self._apply_and_tell)

    def cancel(self) -> None:
        """Restore nothing more: another checkpoint is restored over this one."""
        self._is_cancelled = True
        for kept in (self._done, self._awaited, self._told):
            kept.clear()
        self._saved.close()

    def _together(self, function: Callable[[], None]) -> None:
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

    def _apply_and_tell(self) -> None:
        self._apply()
        with all_listed():
            found = [live for live in objects_below(self._checkpoint) if self._lacks(live)]
        self._told |= {id(live): live for live in found}
        lacking = [_name(live) for live in found]
        if not lacking:
            return
        listed = ", ".join(lacking[:5]) + (f" and {len(lacking) - 5} more" if len(lacking) > 5 else "")
        if self._saved.missing:
            raise SMPCheckpointError(
                f"cannot restore {listed} from {self._saved.name}: this rank's file system has no "
                f"{self._saved.missing[0]}.index. With another cut than that of the save, every rank "
                "needs the files of all ranks: use a shared directory, or copy them"
            )
        later = " until the optimizer is applied, which may bring them" if self._awaited else ""
        _log.warning(
            "rank %s: %s has no value for %s, which keep theirs%s", self._ranks.rank, self._saved.name, listed, later
        )

    def _matches(self, graph: Any) -> Iterator[tuple[Any, Any]]:
        """Nodes that were saved, with the live objects that they are."""
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
        if not node.attributes or id(live) in self._done or not _can_take(live):
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
                f"{bundle.prefix}: {str(error).strip() or type(error).__name__}. The model must be made as it was when "
                "the checkpoint was saved"
            ) from error
        self._done[id(live)] = live

    def _children(self, live: Any) -> dict[str, Any]:
        return {child.name: child.ref for child in graph_of(self._checkpoint).list_children(live)}

    def _lacks(self, live: Any) -> bool:
        is_variable = isinstance(live, tf.Variable) or is_keras_variable(live)
        return is_variable and id(live) not in self._done and id(live) not in self._told and _can_take(live)

    def _await_optimizers(self) -> None:
        """Keras's optimizers make their slots when they are first applied: restore those then."""
        for live in objects_below(self._checkpoint):
            if awaits_slots(live) and id(live) not in self._awaited:
                self._awaited[id(live)] = live
                after_build(live, self._complete)

    def _complete(self, variables: Sequence[Any]) -> None:
        if tracer() is not None:  # inside a step the slots get their values when it is known who holds them
            return
        if engine().holds_any(variables):
            self._together(self._apply)
        elif not self._is_cancelled:  # maybe an optimizer of one rank alone
            self._apply()


def _can_take(live: Any) -> bool:
    if not IS_TF_KERAS and is_keras_variable(live) and live._value is None:
        return False
    return not is_foreign(live)


def _name(live: Any) -> str:
    inner = tensorflow_variable(live)
    return str(getattr(live, "path", None) or getattr(inner, "name", None) or type(live).__name__)
