"""Reports of the training compiler: ``report.json``, ``report.txt``, and one summary line for the log."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from tidemill_tensorflow.compiler.variants.trials import PLAIN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import tensorflow as tf

    from tidemill_tensorflow.compiler.variants.shapes import Shape
    from tidemill_tensorflow.compiler.variants.traced import TracedStep
    from tidemill_tensorflow.compiler.variants.trials import Trial

MAX_SHAPES = 20
"""Number of shapes that the report lists for one function; it only counts further ones."""


def as_dict(steps: Sequence[TracedStep], *, advice: Sequence[str], deterministic: bool) -> dict[str, Any]:
    """Return the content of ``report.json``."""
    return {
        "version": 1,
        "deterministic": deterministic,
        "functions": [_function(step) for step in steps],
        "advice": list(advice),
    }


def summary(steps: Sequence[TracedStep], *, advice: Sequence[str]) -> str:
    """Return a summary of one line."""
    if not steps:
        return "no function of the script is a training step" + "".join(f"; {each}" for each in advice)
    parts = []
    for step in steps:
        chosen = [shape.decision for shape in step.shapes.values() if shape.decision is not None]
        text = "plain" if step.reason else ", ".join(chosen[:MAX_SHAPES]) or undecided(step)
        parts.append(f"{step.name} ({step.runs} steps): {text}")
    return "; ".join(parts)


def undecided(step: TracedStep) -> str:
    """Return how a function without a decision runs, and why it has none."""
    first = "xla" if step.begins_with_xla else "plain"
    return f"{first}, {step.account.wanted()}" if not step.has_begun else f"undecided, {first} so far"


def write(found: dict[str, Any], directory: Path) -> None:
    """Write ``report.json`` and ``report.txt``, each by an atomic rename."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in (("report.json", json.dumps(found, indent=1) + "\n"), ("report.txt", _text(found))):
        partial = directory / f".{name}.{os.getpid()}"
        partial.write_text(text)
        partial.replace(directory / name)


def brief(shapes: Sequence[tf.TensorShape]) -> str:
    """Return the first four shapes as text, without those of scalars."""
    texts = [str(list(shape)) if shape.rank is not None else "?" for shape in shapes if shape.rank != 0]
    return " ".join(texts[:4]) + (" ..." if len(texts) > 4 else "")


def times(trial: Trial, *, runs: int = 1, names: Sequence[str] = ()) -> str:
    """Return the median times that decided a trial, as text.

    Args:
        trial: The trial. Without times of its own, another process has decided.
        runs: Number of training steps in each time.
        names: What to call the variants instead of their names, in their order.
    """
    medians = trial.medians_s(cpu=trial.by_cpu_time)
    if not medians:
        return "as rank 0 decided"
    shown = ", ".join(
        f"{name} {1e3 * seconds / runs:.2f} ms" for name, seconds in zip(names or medians, medians.values())
    )
    return f"{shown}; CPU times, because the machine was busy" if trial.by_cpu_time else shown


def _function(step: TracedStep) -> dict[str, Any]:
    shapes = sorted(step.shapes.values(), key=lambda shape: -shape.calls)
    return {
        "name": step.name,
        "key": step.key,
        "steps": step.runs,
        "fallback": step.reason,
        "step_s": round(step.account.trained_s, 3),
        "compiling_s": round(step.account.spent_s, 3),
        "not_compiled": None if step.reason or step.has_begun else step.account.wanted(),
        "number_of_shapes": len(shapes),
        "varying_arguments": _varying(step),
        "batches_at_once": _batches(step.at_once),
        "shapes": [_shape(shape) for shape in shapes[:MAX_SHAPES]],
    }


def _batches(trial: Trial | None) -> dict[str, Any] | None:
    """Return the decision on several batches per call of Keras's `fit`, or None if it was not tried."""
    if trial is None:
        return None
    medians = {name: round(1e3 * seconds, 4) for name, seconds in trial.medians_s().items()}
    return {"decision": trial.decision, "median_ms_of_all": medians}


def _shape(shape: Shape) -> dict[str, Any]:
    medians = shape.trial.medians_s() if shape.trial is not None else {}
    cpu = shape.trial.medians_s(cpu=True) if shape.trial is not None else {}
    decided_by = None
    if shape.trial is not None and shape.decision is not None and medians:
        decided_by = "CPU time" if shape.trial.by_cpu_time else "wall time"
    return {
        "arguments": [str(each) for each in shape.shapes],
        "key": shape.key,
        "calls": shape.calls,
        "steps_by_variant": dict(shape.steps),
        "decision": shape.decision,
        "from_earlier_job": shape.stored,
        "median_ms": {name: round(1e3 * seconds, 4) for name, seconds in medians.items()},
        "median_cpu_ms": {name: round(1e3 * seconds, 4) for name, seconds in cpu.items()},
        "decided_by": decided_by,
        "rounds": len(next(iter(shape.trial.times.values()), ())) if shape.trial is not None else 0,
        "compile_s": None if shape.compile_s is None else round(shape.compile_s, 3),
        "fallback": shape.reason,
        "notes": list(shape.notes),
    }


def _varying(step: TracedStep) -> list[str]:
    """Return the arguments whose shapes differ between calls, each with up to four of its shapes."""
    if len(step.shapes) < 2:
        return []
    columns = list(zip(*step.shapes))
    return [
        f"{_argument(step.argument_names, index)}: {', '.join(sorted({str(shape) for shape in column})[:4])}"
        for index, column in enumerate(columns)
        if len({str(shape) for shape in column}) > 1
    ]


def _argument(names: Sequence[str], index: int) -> str:
    """Return the script's name of an argument, or "tensor 1 of the batch" for ``IteratorGetNext:1``."""
    node, _, output = names[index].partition(":") if index < len(names) else (f"argument {index}", "", "0")
    return f"tensor {output} of the batch" if "IteratorGetNext" in node else node


def _text(found: dict[str, Any]) -> str:
    lines = ["Training compiler", ""]
    for function in found["functions"]:
        lines.append(f"{function['name']}: {function['steps']} steps, {function['number_of_shapes']} shapes")
        if function["fallback"]:
            lines.append(f"  runs plain: {function['fallback']}")
        if function["not_compiled"]:
            lines.append(f"  {function['not_compiled']}")
        for shape in function["shapes"]:
            by_cpu = shape["decided_by"] == "CPU time"
            medians = shape["median_cpu_ms" if by_cpu else "median_ms"]
            shown = ", ".join(f"{name} {value:.2f} ms" for name, value in medians.items())
            line = f"  {' '.join(shape['arguments'][:4])}: {shape['decision'] or 'undecided'} {shown}".rstrip()
            lines.append(f"{line} (CPU times, because the machine was busy)" if by_cpu else line)
            if shape["fallback"]:
                how = "plain" if shape["decision"] == PLAIN else "without XLA"
                lines.append(f"    runs {how}: {shape['fallback']}")
            lines += [f"    {note}" for note in shape["notes"]]
        lines += [
            f"  shapes vary in {argument}: pad to one length, sort into buckets, or drop_remainder=True"
            for argument in function["varying_arguments"]
        ]
    lines += found["advice"]
    return "\n".join(lines) + "\n"
