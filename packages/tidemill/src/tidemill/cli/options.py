"""Options that several commands share, and the settings made from them."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.errors import ConfigurationError

if TYPE_CHECKING:
    from tidemill.settings import Settings

_SHOWN_CHARS = 120

StateDirOption = Annotated[
    Path | None,
    typer.Option("--state-dir", metavar="DIR", help="State directory of the service (default: TIDEMILL_STATE_DIR)."),
]
EndpointOption = Annotated[
    str | None,
    typer.Option(
        "--endpoint-url", metavar="URL", help="The service (default: AWS_ENDPOINT_URL, settings, your own service)."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def load_settings(**flags: Any) -> "Settings":
    """Return the settings, overridden by the given flags.

    Raises:
        ConfigurationError: A flag, the settings file or a ``TIDEMILL_*`` variable is invalid.
    """
    from tidemill.settings import Settings

    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings(**given)
    except ValueError as error:
        raise ConfigurationError(_text(error)) from error


def _text(error: ValueError) -> str:
    pydantic = sys.modules["pydantic"]
    if not isinstance(error, pydantic.ValidationError):
        return f"the settings file cannot be read: {error}; correct it, or name another with TIDEMILL_CONFIG"
    faults = (
        f"{'.'.join(map(str, fault['loc']))}={_shown(fault['input'])}:"
        f" {'there is no such setting' if fault['type'] == 'extra_forbidden' else fault['msg']}"
        for fault in error.errors(include_url=False)
    )
    return f"settings: {'; '.join(faults)} (flag, TIDEMILL_* variable or settings file)"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
