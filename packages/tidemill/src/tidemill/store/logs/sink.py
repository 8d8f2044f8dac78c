"""Receive the logs of instances on other machines: whole lines, at their offset in the stream."""

import threading
from pathlib import Path

from tidemill.core.instances import StreamName
from tidemill.core.segments import SegmentWriter, create_stream, segment_path, segments_of, stream_directory
from tidemill.instance.samples import SampleSeries, SampleWriter
from tidemill.store.logs.segment_file import SegmentFile


class SegmentSink:
    """Appends delivered lines to the log segments of their stream. May be used from several threads.

    Offsets count the bytes of all segments of a stream, so that lines that are delivered again, e.g. after a restart
    of the service, are stored once.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()

    def create(self, stream: StreamName) -> None:
        """Create a stream durably, unless it exists."""
        create_stream(self._root, stream.group, stream.stream)

    def received_bytes(self, stream: StreamName) -> int:
        """Return the offset from which to deliver.

        Returns:
            Bytes received so far, over all segments.
        """
        directory = self._directory(stream)
        received = 0
        for number in segments_of(directory):
            with SegmentFile(segment_path(directory, number)) as segment:
                received += segment.end
        return received

    def append(self, stream: StreamName, lines: bytes, *, offset: int) -> None:
        """Store lines durably, except those that are stored already, as `LogSink.append`.

        Raises:
            OSError: They could not be stored; deliver them again later.
        """
        if not lines.endswith(b"\n"):
            raise ValueError(f"the lines for {stream.stream!r} at {offset} do not end with a line feed")
        with self._lock, SegmentWriter(self._directory(stream)) as writer:
            received = self.received_bytes(stream)
            if offset > received:
                raise ValueError(f"the lines for {stream.stream!r} begin at {offset}, but only {received} bytes came")
            writer.write_stored(lines[received - offset :])

    def add_samples(self, stream: StreamName, lines: bytes) -> None:
        """Store samples of what the instance of a stream uses, as `LogSink.add_samples`.

        Raises:
            ValueError: There is no sample and no description of an instance in the lines.
        """
        series = SampleSeries.parse(lines)
        if not series.samples and series.instance is None:
            raise ValueError(f"the samples for {stream.stream!r} have another form")
        with self._lock:
            SampleWriter(self._directory(stream), series.instance).add(*series.samples)

    def _directory(self, stream: StreamName) -> Path:
        return stream_directory(self._root, stream.group, stream.stream)
