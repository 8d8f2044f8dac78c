"""Traced functions that run a pipeline of smp: all ranks run the same variant.

The graphs of the ranks differ, and a rank without compilable segments has variants that are the script's function. The
result of a rank does not depend on the variants of other partitions, but replicas of a partition must run the same
variant of their updates. The ranks switch together, because the step time of each one depends on all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from tidemill_tensorflow.compiler.several.pipelines import TracedPipeline, find_pipeline
from tidemill_tensorflow.compiler.several.shared_steps import SharedStep
from tidemill_tensorflow.compiler.variants.shapes import FUSED, XLA
from tidemill_tensorflow.compiler.variants.trials import Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    from tidemill_tensorflow.compiler.graphs.nodes import TensorFunction
    from tidemill_tensorflow.compiler.variants.traced import StepCall


class PipelineStep(SharedStep[TracedPipeline]):
    """Traced training function that runs a pipeline of smp. Every run trains, in any variant."""

    _recording: Callable[..., tuple[list[tf.Tensor], dict[str, tf.Tensor]]] | None = None
    """Runs the function, and also returns the arguments of the segments; None after its only run."""

    def _split(self, concrete: ConcreteFunction, name: str) -> TracedPipeline:
        pipeline = find_pipeline(concrete, name=name)
        self._recording = pipeline.recording()
        assert self._ballot is not None
        self._ballot.fingerprint = f"pipeline {self.name}"  # the ranks have different graphs
        return pipeline

    def release(self) -> None:
        """Free graphs and compiled code when the script's function is gone. What the report needs stays."""
        super().release()
        self._recording = None

    def _run_first(self, parts: TracedPipeline, slots: list[tf.Tensor]) -> object:
        assert self._recording is not None
        results, values = self._recording(*slots)
        self._recording = None
        shapes = tuple([slot.shape for slot in slots if slot.dtype != tf.resource])
        self._ask(shapes, parts.fingerprint, lambda: self._build_pipeline(parts, values))
        return self._pack(results)

    def _build_pipeline(self, pipeline: TracedPipeline, values: Mapping[str, tf.Tensor]) -> dict[str, TensorFunction]:
        shape = self._shape
        assert shape is not None
        compiled = pipeline.compile(values)
        shape.compile_s = compiled.compile_s
        shape.notes.append(f"XLA compiles {len(compiled.calls)} of {len(pipeline.segments)} segments of this rank")
        shape.notes += [f"not compiled: {reason}" for reason in compiled.refused]
        for note in shape.notes:
            self._session.note(f"{self.name}: {note}")
        fused = pipeline.variant(values, None)
        xla = pipeline.variant(values, compiled) if compiled.calls else fused
        return {name: function for name, function in ((XLA, xla), (FUSED, fused)) if function is not None}

    def _new_trial(self) -> Trial:
        # Other ranks use the machine during a step, and the CPU time of one rank says little about the step.
        return Trial(self._agreement.variants)

    def _run_fast(self, variant: str, parts: TracedPipeline, call: StepCall) -> object:
        shape = self._shape
        assert shape is not None
        function = shape.functions.get(variant)
        if function is None:
            return self._run_plain(call)
        shape.calls += 1
        shape.count(variant)
        return self._pack(function(*call.slots()))
