"""The training compiler: each training step runs as TensorFlow's graph or compiled by XLA, whichever is faster.

TensorFlow traces the functions of a script as usual. If a traced function computes or applies gradients, and its
training is long enough for that, XLA compiles a second form of its graph in the background, on copies of the variables.
Real steps of the script then alternate between both forms, until their paired times decide. Every step trains, in the
order of the script, with the same random numbers.

Five files to read first:

- `interception`: each call of a traced function goes through a step of the compiler
- `session`: which functions train, and what belongs to all of them: store, log, report, background thread
- `steps`: a function of one process, split and compiled when that pays, and the variant that each call runs
- `report`: what the user reads about that
- `background`: the thread that compiles, and the threads of XLA

Behind them are three packages, of which each uses only those before it: `graphs` (a function's graph, cut and changed
until XLA compiles it), `variants` (the choice between variants by time and cost, kept for later jobs) and `several`
(processes that choose together, and batches in one call).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from tidemill_tensorflow.compiler.session import CompilerSession

__all__ = ["compile_training"]

MIN_TENSORFLOW = (2, 12)
"""Oldest supported version: the compiler uses private APIs of traced functions (`private_api`)."""

_sessions: list[CompilerSession] = []


def compile_training(
    *,
    deterministic: bool = False,
    report_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    max_cost: float | None = None,
) -> None:
    """Compile the training steps of this process; later calls have no effect.

    If several processes train one model, call this function in each process: they choose the variants together.

    Args:
        deterministic: Choose no variant by time, so that two runs give the same results. Steps then run as an earlier
            run decided in `cache_dir`, or else plain. ``tf.config.experimental.enable_op_determinism()`` has the same
            effect. Default: False.
        report_dir: Directory for ``report.json`` and ``report.txt``, created if missing. Default: log lines only.
        cache_dir: Directory that keeps decisions for later runs, created if missing. Default: decisions are not kept.
        max_cost: Share of a training's time that compiling it may cost. A function is compiled when its training has
            lasted so long, or will certainly last so long, that the estimated cost is below this share; ``math.inf``
            compiles at once. Default: the environment variable ``TIDEMILL_COMPILER_MAX_COST``, or else 0.04.

    Raises:
        ValueError: `max_cost` is negative or no number.
        RuntimeError: The installed TensorFlow is older than 2.12.
    """
    import atexit
    from pathlib import Path

    import tensorflow as tf

    if _sessions:
        return
    if tuple(int(part) for part in tf.__version__.split(".")[:2]) < MIN_TENSORFLOW:
        wanted = ".".join(str(part) for part in MIN_TENSORFLOW)
        raise RuntimeError(
            f"compile_training needs TensorFlow {wanted} or newer, and this is {tf.__version__}: use"
            f" framework_version={wanted!r}"
        )
    from tidemill_tensorflow.compiler import interception
    from tidemill_tensorflow.compiler.session import CompilerSession
    from tidemill_tensorflow.compiler.variants import payback

    session = CompilerSession(
        deterministic=deterministic,
        report_dir=None if report_dir is None else Path(report_dir),
        cache_dir=None if cache_dir is None else Path(cache_dir),
        max_cost=payback.max_cost_of(max_cost),
    )
    atexit.register(session.end)
    interception.install(session.step_of, restart=session.restart_random_ops, advise=session.advise)
    session.batches.watch()
    _sessions.append(session)
