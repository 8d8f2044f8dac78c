"""What a reader is told: the arguments of one dataset, checked and gathered.

Both readers, the native and the one in Python, take the same object.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RECORD_FORMATS", "ReaderOptions"]

RECORD_FORMATS = ("RecordIO", "TFRecord", "TextLine")


@dataclass(frozen=True)
class ReaderOptions:
    """What one PipeModeDataset reads, and how."""

    channel: str
    """Name of the channel."""
    record_format: str
    """One of `RECORD_FORMATS`."""
    state_dir: str
    """Directory of the epoch counter and its lock."""
    pipe_dir: str
    """Directory of the FIFOs."""
    benchmark: bool = False
    """Print totals when an iterator goes."""
    benchmark_records_interval: int = 0
    """Print the figures of every so-manieth record; 0 for none."""
    max_corrupted_records: int = 0
    """How many TFRecords in a row may fail their data checksum and are dropped."""
    max_record_bytes: int = 256 << 20
    """A greater announced length is an error before memory is taken."""
    strict_padding: bool = False
    """Whether the last RecordIO record must be padded, too."""
    path_timeout_s: float = 120.0
    """How long a FIFO may be absent."""

    @property
    def lock_path(self) -> str:
        """The file that is locked while an epoch is taken."""
        return f"{self.state_dir}/.{self.channel}-pipe_mode-lock"

    @property
    def state_path(self) -> str:
        """The file that holds the number of the next epoch."""
        return f"{self.state_dir}/.{self.channel}-pipe_mode-state"

    def fifo_path(self, epoch: int) -> str:
        """Where the FIFO of an epoch is."""
        return f"{self.pipe_dir}/{self.channel}_{epoch}"

    def outcome_path(self, epoch: int) -> str:
        """Where the feeder says how the epoch went."""
        return f"{self.pipe_dir}/.tidemill/{self.channel}_{epoch}.json"

    @property
    def feeder_lock_path(self) -> str:
        """The file that the channel's feeder keeps locked as long as it lives."""
        return f"{self.pipe_dir}/.tidemill/{self.channel}.feeder"
