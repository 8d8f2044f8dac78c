"""A job's log lines, from all its instances, each line once and in order."""

from dataclasses import dataclass
from typing import Any

__all__ = ["LogLine", "LogTail"]

TRAINING_JOBS = "/aws/sagemaker/TrainingJobs"
_MAX_PAGES = 20


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line.

    Attributes:
        timestamp_ms: When the service took it.
        instance: Number of the log stream it came from, counted from 0 in the order of names.
        message: As the script wrote it.
    """

    timestamp_ms: int
    instance: int
    message: str


class LogTail:
    """Reads on where the last read stopped, by the service's own token.

    Args:
        client: boto3's ``logs`` client.
        group: Log group.
        prefix: Streams of the job begin with this; every stream is an instance.
        instances: How many streams there will be.
    """

    def __init__(self, client: Any, *, group: str = TRAINING_JOBS, prefix: str, instances: int) -> None:
        self._client = client
        self._group = group
        self._prefix = prefix
        self.instances = instances
        self._streams: list[str] = []
        self._tokens: dict[str, str] = {}

    @property
    def several(self) -> bool:
        """Whether lines of more than one instance come or may come."""
        return max(self.instances, len(self._streams)) > 1

    def read(self, *, everything: bool = False) -> list[LogLine]:
        """New lines of all streams, by time.

        Args:
            everything: Read to the end even if lines come faster than they are read; for a job that is over.
        """
        self._find_streams()
        lines = [
            LogLine(event["timestamp"], number, event["message"])
            for number, stream in enumerate(self._streams)
            for event in self._read_stream(stream, None if everything else _MAX_PAGES)
        ]
        # The sort is stable: lines of one stream keep their order.
        return sorted(lines, key=lambda line: line.timestamp_ms)

    def _find_streams(self) -> None:
        if len(self._streams) >= self.instances:
            return
        try:
            found = self._client.describe_log_streams(
                logGroupName=self._group, logStreamNamePrefix=self._prefix, orderBy="LogStreamName"
            )
        except self._client.exceptions.ResourceNotFoundException:
            return  # nobody has written yet
        names = [stream["logStreamName"] for stream in found["logStreams"]]
        self._streams += sorted(set(names) - set(self._streams), key=_instance_order)

    def _read_stream(self, stream: str, max_pages: int | None) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        pages = 0
        while max_pages is None or pages < max_pages:
            place = {"nextToken": self._tokens[stream]} if stream in self._tokens else {}
            page = self._client.get_log_events(
                logGroupName=self._group, logStreamName=stream, startFromHead=True, **place
            )
            events += page["events"]
            moved = page["nextForwardToken"] != self._tokens.get(stream)
            self._tokens[stream] = page["nextForwardToken"]
            pages += 1
            if not moved or not page["events"]:
                break
        return events


def _instance_order(stream: str) -> tuple[int, str]:
    """``JOB/algo-10`` comes after ``JOB/algo-2``."""
    number = stream.rpartition("/")[2].removeprefix("algo-").partition("-")[0]
    return (int(number) if number.isdigit() else 0, stream)
