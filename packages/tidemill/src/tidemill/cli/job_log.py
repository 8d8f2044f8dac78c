"""The log of one job or endpoint: its lines through filters, followed across restarts of the service."""

import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from tidemill.cli.failures import CommandFailed
from tidemill.cli.kinds import ENDPOINT, PROCESSING, TRAINING, TRANSFORM
from tidemill.cli.service import NamedService, find_service
from tidemill.sdk.follow import patiently
from tidemill.sdk.logs import LogLine, StreamReader, instance_of, instance_order, merged

if TYPE_CHECKING:
    from tidemill.cli.service import Named
    from tidemill.sdk.console import Console

_T = TypeVar("_T")

_GROUPS = {TRAINING: "TrainingJobs", PROCESSING: "ProcessingJobs", TRANSFORM: "TransformJobs"}
_LOOK_EVERY_S = 0.5
_MAX_PAGE = 10_000  # CloudWatch's limit of events in an answer
_ENDED = ("Completed", "Failed", "Stopped")


class ShownLog:
    """Reads the log streams of one job or endpoint, each from the position of the last read.

    Args:
        service: The service.
        found: The job or the endpoint.
        since_ms: Only lines that the service received then or later, in milliseconds since the epoch.
        pattern: Only lines in which it is found.
        instances: Only lines of these instances, by name. Default: all.
        console: Prints that the service does not answer.
    """

    def __init__(
        self,
        service: NamedService,
        found: "Named",
        *,
        since_ms: int | None = None,
        pattern: re.Pattern[str] | None = None,
        instances: Sequence[str] = (),
        console: "Console",
    ) -> None:
        self._service = service
        self._found = found
        self._since_ms = since_ms
        self._pattern = pattern
        self._instances = instances
        self._console = console
        self._readers: dict[str, StreamReader] = {}
        is_endpoint = found.kind is ENDPOINT
        self._group = f"/aws/sagemaker/{f'Endpoints/{found.name}' if is_endpoint else _GROUPS[found.kind]}"
        self._prefix = "" if is_endpoint else f"{found.name}/"
        self.several = False

    def read(self, *, tail: int | None = None, follow: bool = False) -> Iterator[list[LogLine]]:
        """Yield lines in batches, those of several instances ordered by time.

        Args:
            tail: Only so many of the lines that exist, the last. Default: all.
            follow: Continue until the job has ended and all its lines were read.

        Raises:
            CommandFailed: There is none of the instances, and nothing is followed.
        """
        while True:
            # Checked before reading, so that lines written just before the end are not missed.
            ended = not follow or self._has_ended()
            yield from self._new(tail)
            tail = None
            if ended:
                return
            time.sleep(_LOOK_EVERY_S)

    def _new(self, tail: int | None) -> Iterator[list[LogLine]]:
        """Yield the lines that are new since the last call."""
        streams = self._streams()
        self.several = len(streams) > 1
        # Of an unfiltered log the service finds the end; of others all lines have to be looked at.
        newest = tail if tail and tail <= _MAX_PAGE and self._pattern is None else None
        batches = merged({instance_of(stream): self._pages(stream, newest=newest) for stream in streams})
        if self._pattern is not None:
            found = self._pattern.search
            batches = ([line for line in batch if found(line[1])] for batch in batches)
        if tail is None:
            yield from batches
        elif last := list(deque(chain.from_iterable(batches), maxlen=tail)):
            yield last

    def _streams(self) -> list[str]:
        prefix = {"logStreamNamePrefix": self._prefix} if self._prefix else {}
        try:
            answer = self._ask(lambda: self._service.logs.describe_log_streams(logGroupName=self._group, **prefix))
        except self._service.logs.exceptions.ResourceNotFoundException:
            return []  # nothing has been written yet
        names = sorted((stream["logStreamName"] for stream in answer["logStreams"]), key=instance_order)
        if not self._instances:
            return names
        known = {instance_of(name) for name in names}
        unknown = sorted(set(self._instances) - known)
        if unknown and known and not self._readers:
            raise CommandFailed(
                f"{self._found.name} has no line of {', '.join(unknown)}; there are lines of"
                f" {', '.join(sorted(known, key=instance_order))}"
            )
        return [name for name in names if instance_of(name) in self._instances]

    def _pages(self, stream: str, *, newest: int | None) -> Iterator[list[dict[str, Any]]]:
        if stream not in self._readers:
            self._readers[stream] = StreamReader(
                self._service.logs,
                group=self._group,
                stream=stream,
                ask=self._ask,
                since_ms=self._since_ms,
                newest=newest,
            )
        try:
            yield from self._readers[stream].pages()
        except self._service.logs.exceptions.ResourceNotFoundException:
            return

    def _has_ended(self) -> bool:
        kind, name = self._found.kind, self._found.name
        status = kind.status(self._ask(lambda: self._service.describe(kind, name)))
        return status == "Failed" if kind is ENDPOINT else status in _ENDED

    def _ask(self, request: Callable[[], _T]) -> _T:
        """Send a request; repeat it while the service restarts, and at its new address if it got one."""
        from botocore.exceptions import ConnectionError as AwayError

        def attempt() -> _T:
            try:
                return request()
            except AwayError:
                self._find_service_again()
                raise

        return patiently(attempt, session=self._service.sdk, console=self._console)

    def _find_service_again(self) -> None:
        found = find_service(self._service.choice)
        if found is not None and found.url != self._service.url:
            self._service = found
            for reader in self._readers.values():
                reader.client = found.logs
