"""Switch on what is added to TensorFlow: some of it before TensorFlow is imported, some of it after."""

from __future__ import annotations

import os
import sys

__all__ = ["activate", "after_import", "before_import"]


def activate() -> None:
    """Import TensorFlow with all that is added to it; do nothing if that has been done.

    oneDNN's switches have an effect only before TensorFlow's first import.
    """
    before_import()
    import tensorflow  # noqa: F401

    after_import()


def before_import() -> None:
    """Set what TensorFlow reads when it is imported."""
    if _is_set("TF_DISABLE_MKL") and "tensorflow" not in sys.modules:
        # The builds for which this name was made had oneDNN or not; today's have a switch.
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    if _is_set("TF_DISABLE_POOL_ALLOCATOR"):
        _note("TF_DISABLE_POOL_ALLOCATOR has no effect: the TensorFlow of this job has no such pool")
    if _is_set("TIDEMILL_COMPILER"):
        _set_xla_flags()
    # Before TensorFlow, so that its exit handler runs after those of TensorFlow.
    from tidemill_tensorflow.s3 import plugin  # noqa: F401


def after_import() -> None:
    """Register ``s3://``. A script that has no use for it must not fail with it: the reason is a line of the log."""
    from tidemill_tensorflow import mirrored_keras
    from tidemill_tensorflow.s3 import plugin

    try:
        plugin.register()
    except Exception as error:  # noqa: BLE001 - of the compiler, the loader or TensorFlow
        _note(f"s3:// paths do not work inside TensorFlow: {error}")
    mirrored_keras.watch_keras()
    if _is_set("TIDEMILL_COMPILER"):
        _switch_on_compiler()


def _switch_on_compiler() -> None:
    """Compile the training steps of a job that asks for it. A job must not fail with it, only run plain."""
    try:
        from tidemill_tensorflow.compiler import compile_training

        compile_training(
            report_dir=os.environ.get("TIDEMILL_COMPILER_REPORT") or None,
            cache_dir=os.environ.get("TIDEMILL_COMPILER_CACHE") or None,
        )
    except Exception as error:  # noqa: BLE001 - an opt-in that makes scripts faster may not break them
        _note(f"{error}; the job runs without it")


def _set_xla_flags() -> None:
    """Set the directory for XLA's graph dumps, which XLA reads once per process.

    Not its persistent cache: a damaged entry in it fails the function.
    """
    report = os.environ.get("TIDEMILL_COMPILER_REPORT")
    if report and _is_set("TIDEMILL_COMPILER_DEBUG"):
        _append("XLA_FLAGS", f"--xla_dump_to={report}/hlo")


def _append(name: str, flag: str) -> None:
    option = flag.partition("=")[0]
    if option not in os.environ.get(name, ""):
        os.environ[name] = f"{os.environ.get(name, '')} {flag}".strip()


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() in ("1", "true", "yes", "on")


def _note(text: str) -> None:
    sys.stderr.write(f"tidemill: {text}\n")
