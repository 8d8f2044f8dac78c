"""Which service clients use, as far as the environment names it, and where the settings file is.

Apart from `tidemill.settings`, so that completion in shells needs no settings object, whose library takes longer to
import than the answer may take.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ENDPOINT_VARIABLES = ("TIDEMILL_ENDPOINT_URL", "AWS_ENDPOINT_URL_SAGEMAKER", "AWS_ENDPOINT_URL")


@dataclass(frozen=True, slots=True)
class NamedEndpoint:
    """A service that a flag, the environment or the settings file names.

    Attributes:
        url: URL of the service.
        named_by: The flag, the environment variable or the setting, for messages.
    """

    url: str
    named_by: str

    @property
    def is_botocores(self) -> bool:
        """Whether botocore reads the variable itself, separately for each AWS service."""
        return self.named_by.startswith("AWS_")


def named_in_environment() -> NamedEndpoint | None:
    """Return the service that an environment variable names."""
    for variable in _ENDPOINT_VARIABLES:
        if url := os.environ.get(variable):
            return NamedEndpoint(url, variable)
    return None


def settings_file() -> Path:
    """Return the path of the settings file, which need not exist."""
    return Path(os.environ.get("TIDEMILL_CONFIG") or Path.home() / ".config/tidemill/config.toml")


def state_directory(configured: Mapping[str, Any]) -> Path:
    """Return the state directory of this user's own service.

    Args:
        configured: Content of the settings file.
    """
    named = os.environ.get("TIDEMILL_STATE_DIR") or configured.get("state_dir")
    return Path(named) if named else user_directory("XDG_DATA_HOME", ".local/share")


def user_directory(variable: str, fallback: str) -> Path:
    """Return tidemill's directory of one kind, e.g. ``~/.cache/tidemill``.

    Args:
        variable: Variable of the XDG specification, e.g. ``XDG_CACHE_HOME``.
        fallback: Directory below the user's home if it is not set.
    """
    return Path(os.environ.get(variable) or Path.home() / fallback) / "tidemill"
