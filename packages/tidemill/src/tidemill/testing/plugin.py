"""Fixtures for pytest: a service for the test session, and boto3 sessions for it.

The entry point ``pytest11`` registers them in every environment with tidemill. A fixture imports and starts nothing
until a test uses it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidemill.testing.service import Service

__all__ = ["tidemill_service", "tidemill_session", "tidemill_settings"]


@pytest.fixture(scope="session")
def tidemill_settings() -> dict[str, object]:
    """Return the settings of `tidemill_service` by name. Default: none.

    Override the fixture in ``conftest.py``, e.g. to return ``{"stop_grace_s": 2}``.

    Returns:
        Members of `tidemill.settings.Settings`.
    """
    return {}


@pytest.fixture(scope="session")
def tidemill_service(tidemill_settings: dict[str, object]) -> "Iterator[Service]":
    """Start a `Service` with an empty state directory, shared by the test session and removed at its end.

    Args:
        tidemill_settings: The fixture with the settings of the service.

    Yields:
        The running service.
    """
    from tidemill.testing.service import Service

    with Service(settings=tidemill_settings) as service:
        yield service


@pytest.fixture
def tidemill_session(tidemill_service: "Service") -> Any:
    """Return a new boto3 session whose clients use `tidemill_service`.

    Args:
        tidemill_service: The fixture with the service.

    Returns:
        A boto3 session.
    """
    return tidemill_service.boto3_session()
