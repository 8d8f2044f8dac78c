"""Options of a reader: the validated arguments of one dataset, the same for the native and the Python reader."""

from __future__ import annotations

from dataclasses import dataclass

RECORD_FORMATS = ("RecordIO", "TFRecord", "TextLine")


@dataclass(frozen=True)
class ReaderOptions:
    """Channel, directories, record format and limits of one PipeModeDataset."""

    channel: str
    """Name of the channel."""
    record_format: str
    """One of `RECORD_FORMATS`."""
    state_dir: str
    """Directory of the epoch counter and its lock."""
    pipe_dir: str
    """Directory of the FIFOs."""
    benchmark: bool = False
    """Whether to print totals when an iterator is destroyed."""
    benchmark_records_interval: int = 0
    """Print figures after every this many records; 0 disables it."""
    max_corrupted_records: int = 0
    """Number of consecutive TFRecords with a wrong data checksum that are dropped."""
    max_record_bytes: int = 256 << 20
    """Largest record in bytes; a larger announced length raises before memory is allocated."""
    strict_padding: bool = False
    """Whether the last RecordIO record must be padded, too."""
    path_timeout_s: float = 120.0
    """Seconds to wait for a missing FIFO."""

    @property
    def lock_path(self) -> str:
        """Path of the file that is locked while the epoch counter advances."""
        return f"{self.state_dir}/.{self.channel}-pipe_mode-lock"

    @property
    def state_path(self) -> str:
        """Path of the file that holds the number of the next epoch."""
        return f"{self.state_dir}/.{self.channel}-pipe_mode-state"

    def fifo_path(self, epoch: int) -> str:
        """Return the path of an epoch's FIFO.

        Args:
            epoch: Number of the epoch, from 0.

        Returns:
            ``PIPE_DIR/CHANNEL_EPOCH``.
        """
        return f"{self.pipe_dir}/{self.channel}_{epoch}"

    def outcome_path(self, epoch: int) -> str:
        """Return the path of the feeder's outcome file for an epoch.

        Args:
            epoch: Number of the epoch, from 0.

        Returns:
            A path below ``PIPE_DIR/.tidemill``.
        """
        return f"{self.pipe_dir}/.tidemill/{self.channel}_{epoch}.outcome"

    @property
    def feeder_lock_path(self) -> str:
        """Path of the file that the channel's feeder keeps locked while it is alive."""
        return f"{self.pipe_dir}/.tidemill/{self.channel}.feeder"
