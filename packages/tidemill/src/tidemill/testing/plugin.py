"""Fixtures for pytest: a service of the test session's own, and boto3 sessions for it.

Registered by the entry point, so that they are there wherever tidemill is installed. Nothing is imported or started
before a test asks for one.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidemill.testing.service import Service

__all__ = ["tidemill_service", "tidemill_session", "tidemill_settings"]


@pytest.fixture(scope="session")
def tidemill_settings() -> dict[str, object]:
    """Settings of `tidemill_service` by name. Override it in ``conftest.py``, e.g. ``{"stop_grace_s": 2}``."""
    return {}


@pytest.fixture(scope="session")
def tidemill_service(tidemill_settings: dict[str, object]) -> "Iterator[Service]":
    """A running service with an empty state directory, shared by the test session and removed at its end."""
    from tidemill.testing.service import Service

    with Service(settings=tidemill_settings) as service:
        yield service


@pytest.fixture
def tidemill_session(tidemill_service: "Service") -> Any:
    """A boto3 session whose clients talk to `tidemill_service`."""
    return tidemill_service.boto3_session()
