"""Read files with messages in protobuf's text form."""

import importlib
from pathlib import Path
from typing import Any

from tidemill_serving.errors import StartFailed


def parse_text_file(path: Path, message: Any) -> Any:
    """Fill a message from a file in protobuf's text form, and return it.

    Raises:
        StartFailed: The file cannot be read, or does not contain such a message.
    """
    text_format = importlib.import_module("google.protobuf.text_format")
    try:
        return text_format.Parse(path.read_text(encoding="utf-8"), message)
    except (OSError, UnicodeDecodeError) as error:
        raise StartFailed(f"cannot read {path}: {error}") from error
    except text_format.ParseError as error:
        # The text of protobuf's own parser, which users look for in TF Serving's log.
        raise StartFailed(f"{path}: Error parsing text-format {message.DESCRIPTOR.full_name}: {error}") from error
