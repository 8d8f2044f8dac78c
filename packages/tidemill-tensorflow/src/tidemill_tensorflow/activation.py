"""Activate the additions to TensorFlow: some before TensorFlow is imported, the others after."""

from __future__ import annotations

import os
import sys


def activate() -> None:
    """Import TensorFlow and activate all additions; later calls have no effect.

    oneDNN's switches have an effect only if TensorFlow was not imported before.
    """
    before_import()
    import tensorflow  # noqa: F401

    after_import()


def before_import() -> None:
    """Set the environment variables that TensorFlow reads when it is imported."""
    if _is_set("TF_DISABLE_MKL") and "tensorflow" not in sys.modules:
        # TF_DISABLE_MKL comes from builds made with or without oneDNN. Today's builds have a switch.
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    if _is_set("TF_DISABLE_POOL_ALLOCATOR"):
        _note("TF_DISABLE_POOL_ALLOCATOR has no effect: the TensorFlow of this job has no such pool")
    if _is_set("TIDEMILL_COMPILER"):
        _set_xla_flags()
    # Imported before TensorFlow, so that the plugin's exit handler runs after TensorFlow's.
    from tidemill_tensorflow.s3 import plugin  # noqa: F401


def after_import() -> None:
    """Register ``s3://``, repair Keras, and start the training compiler if the job asks for it.

    A failure to register ``s3://`` is logged, not raised, because the script may not use ``s3://`` at all.
    """
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
    """Start the training compiler. If that fails, log the reason and let the job run without it."""
    try:
        from tidemill_tensorflow.compiler import compile_training

        compile_training(
            report_dir=os.environ.get("TIDEMILL_COMPILER_REPORT") or None,
            cache_dir=os.environ.get("TIDEMILL_COMPILER_CACHE") or None,
        )
    except Exception as error:  # noqa: BLE001 - an opt-in that makes scripts faster may not break them
        sys.stderr.write(f"training compiler: {error}; the job runs without it\n")


def _set_xla_flags() -> None:
    """Set the directory of XLA's graph dumps. XLA reads this flag once per process.

    XLA's persistent cache stays off: a damaged entry in that cache makes the function fail.
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
