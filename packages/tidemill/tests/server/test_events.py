"""The service's own log."""

import io
import logging
from collections.abc import Iterator

import pytest
import structlog

from tidemill.server import events


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    before = logging.getLogger().handlers[:], logging.getLogger().level
    events.configure(level="info", secrets=["TOPSECRET"], stream=stream)
    yield stream
    structlog.reset_defaults()
    logging.getLogger().handlers[:], logging.getLogger().level = before


def test_an_event_is_one_line_of_pairs(log: io.StringIO) -> None:
    structlog.get_logger().info("job.started", name="digits", attempt=2)
    assert log.getvalue().split(" ", 1)[1] == "info job.started name=digits attempt=2\n"


def test_a_value_cannot_forge_a_line_or_drive_a_terminal(log: io.StringIO) -> None:
    structlog.get_logger().info("request.refused", path="/x\n2026 info job.started\x1b[31m")
    assert log.getvalue().count("\n") == 1
    assert "\x1b" not in log.getvalue()


def test_secrets_are_masked_wherever_they_stand(log: io.StringIO) -> None:
    structlog.get_logger().info("odd", text="key TOPSECRET", authorization="AWS4-HMAC-SHA256 ...")
    assert "TOPSECRET" not in log.getvalue()
    assert "AWS4" not in log.getvalue()


def test_events_below_the_level_are_left_out(log: io.StringIO) -> None:
    structlog.get_logger().debug("noise")
    logging.getLogger("botocore.auth").info("noise")
    assert log.getvalue() == ""


def test_warnings_and_tracebacks_of_libraries_are_logged(log: io.StringIO) -> None:
    try:
        raise ValueError("TOPSECRET is wrong")
    except ValueError:
        logging.getLogger("botocore.auth").exception("failed")
    text = log.getvalue()
    assert "error failed logger=botocore.auth" in text
    assert "    ValueError: *** is wrong" in text
