"""Read the training job's channels from `inputdataconfig.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sagemaker_tensorflow.errors import PipeModeDatasetException


def read_input_data_config(config_dir: str) -> dict[str, Any]:
    """Read `config_dir/inputdataconfig.json`.

    Raises:
        OSError: The file is missing or cannot be read.
        PipeModeDatasetException: The file does not contain a JSON object.
    """
    path = Path(config_dir) / "inputdataconfig.json"
    text = path.read_text(encoding="utf-8")
    try:
        channels = json.loads(text)
    except ValueError as error:
        raise PipeModeDatasetException(f"{path} is not JSON: {error}. Received: {text[:80]!r}") from error
    if not isinstance(channels, dict):
        raise PipeModeDatasetException(f"{path} must hold a JSON object of channels. Received: {text[:80]!r}")
    return channels


def require_pipe_channel(channel: str, channels: dict[str, Any]) -> None:
    """Raise PipeModeDatasetException unless `channel` is in `channels` and its mode is Pipe.

    Args:
        channels: Content of `inputdataconfig.json`.

    Raises:
        PipeModeDatasetException: If the channel is missing or has another mode.
    """
    if channel not in channels:
        known = ", ".join(sorted(channels)) or "none"
        raise PipeModeDatasetException(
            f"Channel {channel} not found in Training Job InputDataConfig. Channels there: {known}"
        )
    about = channels[channel]
    mode = about.get("TrainingInputMode", "") if isinstance(about, dict) else ""
    if str(mode).lower() != "pipe":
        raise PipeModeDatasetException(
            f"Channel {channel} is not a PipeMode channel. Its TrainingInputMode is {mode or 'absent'!s};"
            " start the job with input_mode='Pipe'"
        )
