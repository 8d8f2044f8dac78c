"""Warnings about files that a user may have forgotten to save; never errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill_runtime.user_files import files_below

if TYPE_CHECKING:
    from pathlib import Path

SAVED_MODEL_NAMES = ("saved_model.pb", "saved_model.pbtxt")


def warnings_about(model_dir: Path) -> list[str]:
    """Return why the content of the model directory may not be servable; empty if it is.

    Args:
        model_dir: `SM_MODEL_DIR`.

    Returns:
        One sentence for each reason.
    """
    files = list(files_below(model_dir))
    if not files:
        return [f"nothing was saved under {model_dir}, so the job has no model.tar.gz"]
    saved = [path.parent for path in files if path.name in SAVED_MODEL_NAMES]
    if not saved:
        return [
            f"there is no SavedModel under {model_dir}; TensorFlow Serving needs one, e.g. "
            'model.export(os.path.join(os.environ["SM_MODEL_DIR"], "1")), before TensorFlow 2.13 '
            'model.save(DIRECTORY, save_format="tf"), '
            "in 1.15 tf.keras.experimental.export_saved_model(model, DIRECTORY)"
        ]
    odd = [str(path.relative_to(model_dir)) for path in saved if not path.name.isdigit() or path == model_dir]
    if odd:
        return [
            f"the SavedModel in {odd[0]!r} below {model_dir} is not in a directory named by a version number; "
            "TensorFlow Serving looks for names such as 1 or 00000123"
        ]
    return []
