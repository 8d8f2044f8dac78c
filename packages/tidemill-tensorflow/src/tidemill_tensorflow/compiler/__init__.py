"""The training compiler: training steps run as TensorFlow's own graph or as XLA's, whichever measures faster.

The functions of a script are traced as ever. When a traced function computes gradients or applies them, its graph gets
a second form that XLA compiles in the background (`parts`, `regions`, `random_numbers`), on copies of the variables.
Real steps of the script then run through both in turn (`steps`, `trials`), until paired times decide. Every step
trains, in the order of the script, with the same random numbers.

Where processes communicate in a function, they choose together (`shared_steps`, `agreement`, `groups`), and what
depends on the communication is not compiled. Keras's `fit` may call a compiled step for several batches at once
(`keras_batches`, `several_runs`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from tidemill_tensorflow.compiler.session import Session

__all__ = ["compile_training"]

MIN_TENSORFLOW = (2, 21)
"""It works on traced functions below TensorFlow's public API, and is tested with this version."""

_sessions: list[Session] = []


def compile_training(
    *,
    deterministic: bool = False,
    report_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> None:
    """Compile the training steps of this process; do nothing if that is on already.

    In a training of several processes, call it in each of them: they meet to decide together.

    Args:
        deterministic: Let no timing decide, so that two runs give the same results: a decision stored in `cache_dir` by
            an earlier run is used, else steps run plain. ``tf.config.experimental.enable_op_determinism()`` does the
            same. Default: False.
        report_dir: Directory for ``report.json`` and ``report.txt``, made if missing. Default: log lines only.
        cache_dir: Directory in which decisions are kept for later runs, made if missing. Default: none are kept.

    Raises:
        RuntimeError: This TensorFlow is too old for it.
    """
    from pathlib import Path

    import tensorflow as tf

    if _sessions:
        return
    if tuple(int(part) for part in tf.__version__.split(".")[:2]) < MIN_TENSORFLOW:
        wanted = ".".join(str(part) for part in MIN_TENSORFLOW)
        raise RuntimeError(
            f"the training compiler needs TensorFlow {wanted} or newer, and this is {tf.__version__}: use"
            f" framework_version={wanted!r}"
        )
    from tidemill_tensorflow.compiler import interception
    from tidemill_tensorflow.compiler.session import Options, Session

    session = Session(
        Options(
            deterministic=deterministic,
            report_dir=None if report_dir is None else Path(report_dir),
            cache_dir=None if cache_dir is None else Path(cache_dir),
        )
    )
    interception.install(session)
    _sessions.append(session)
