"""The service's own log: one event per line, `time level event key=value ...`, on standard error.

The standard error of a detached service is `service.log` (`tidemill.server.service_log`). Values that contain anything
but plain characters are quoted, so that no request can forge a line or send control sequences to a terminal. The secret
key is masked wherever it occurs. Log lines of users' jobs are not part of this log.
"""

import json
import logging
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

_PLAIN = re.compile(r"[\w.,:;/@+%*~()\[\]-]+", re.ASCII)
_MASKED_KEYS = re.compile(r"secret|password|authorization|session_token", re.IGNORECASE)
_MASK = "***"


class Stream(Protocol):
    """Where lines go."""

    def write(self, text: str, /) -> int:
        """Write a line with its end."""
        ...

    def flush(self) -> None:
        """Write what is buffered."""


def configure(*, level: str, secrets: Iterable[str] = (), stream: Stream | None = None) -> None:
    """Send structlog events, and the warnings of the libraries below, to ``stream`` (default: standard error).

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``.
        secrets: Texts that are masked wherever they appear.
    """
    output = cast(TextIO, stream or sys.stderr)  # nothing else of it is used
    number = logging.getLevelNamesMapping()[level.upper()]
    hidden = tuple(filter(None, secrets))
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, *shared, _renderer(hidden)],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=output),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(output)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _renderer(hidden)],
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
        )
    )
    # Below "warning", libraries log what the service's own events already report.
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING), force=True)


def _renderer(secrets: tuple[str, ...]) -> Processor:
    def render(_logger: WrappedLogger, _method: str, event_dict: EventDict) -> str:
        line = _line(event_dict)
        for secret in secrets:
            line = line.replace(secret, _MASK)
        return line

    return render


def _line(event: Mapping[str, Any]) -> str:
    rest = dict(event)
    head = [str(rest.pop("timestamp", "")), str(rest.pop("level", ""))]
    name, trace = str(rest.pop("event", "")), cast(str | None, rest.pop("exception", None))
    # Messages of libraries are sentences; the service's own are dotted names.
    head.append(_quoted(name))
    pairs = [f"{key}={_MASK if _MASKED_KEYS.search(key) else _quoted(value)}" for key, value in rest.items()]
    # A traceback is from the service's code, not from a client, so it keeps its lines. They are indented, so that every
    # record starts in column one.
    tail = "".join(f"\n    {line}" for line in _printable(trace).split("\n")) if trace else ""
    return " ".join(text for text in head + pairs if text) + tail


def _quoted(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=True)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)
