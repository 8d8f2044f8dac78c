"""Options that several commands share, and the settings made from them."""

import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.errors import ConfigurationError

if TYPE_CHECKING:
    from tidemill.settings import Settings

_PASSWORD = re.compile(r"//[^/@]*@")
_SHOWN_CHARS = 120
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}

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


def point_in_time(text: str, *, option: str) -> datetime:
    """Return the time that an option names: so long ago, e.g. ``90m`` or ``1d12h``, or a date in ISO 8601.

    Args:
        text: Value of the option. A date without a zone is local time.
        option: The option, for errors.

    Raises:
        BadParameter: The text is neither.
    """
    if re.fullmatch(r"(\d+[smhd])+", text):
        ago_s = sum(int(number) * _UNITS_S[unit] for number, unit in re.findall(r"(\d+)([smhd])", text))
        return datetime.now(UTC) - timedelta(seconds=ago_s)
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        allowed = "30s, 10m, 2h, 1d or a combination, or a date such as 2026-11-27T08:30"
        raise typer.BadParameter(f"{text!r} is no time; allowed are {allowed}", param_hint=option) from error


def _text(error: ValueError) -> str:
    pydantic = sys.modules["pydantic"]
    if not isinstance(error, pydantic.ValidationError):
        return f"the settings file cannot be read: {error}; correct it, or name another with TIDEMILL_CONFIG"
    faults = map(_fault, error.errors(include_url=False))
    return f"settings: {'; '.join(faults)} (flag, TIDEMILL_* variable or settings file)"


def _fault(fault: Mapping[str, Any]) -> str:
    name = ".".join(map(str, fault["loc"]))
    if fault["type"] in _UNKNOWN:
        return f"{name}: there is no such setting"  # without its value: it may be a secret with a misspelled name
    return f"{shown_setting(name, fault['input'])}: {fault['msg']}"


def shown_setting(name: str, value: object) -> str:
    """Return a setting for a message: with its value, unless that is, or may contain, a secret.

    Args:
        name: Its name; in a table behind a dot.
        value: What it was given.
    """
    if "secret" in name or name == "database_url" or not isinstance(value, str | int | float):
        return name
    text = _PASSWORD.sub("//***@", repr(value))
    return f"{name}={text if len(text) <= _SHOWN_CHARS else f'{text[:_SHOWN_CHARS]}...'}"
