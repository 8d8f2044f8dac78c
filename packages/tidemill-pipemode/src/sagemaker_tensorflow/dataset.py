"""PipeModeDataset: a Pipe mode channel as a `tf.data.Dataset`.

The reader returns vectors of the records that have arrived; standard TensorFlow datasets split them into single
records or regroup them into batches. An iterator opens its epoch at its first record and releases it when destroyed.
"""

from __future__ import annotations

import os
import sys
import warnings
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

from sagemaker_tensorflow import early_tensorflow, waits
from sagemaker_tensorflow.channels import read_input_data_config, require_pipe_channel
from sagemaker_tensorflow.chunks import ChunkDataset, NativeOps, PythonOps
from sagemaker_tensorflow.errors import PipeModeDatasetException, PipeModeFallbackWarning
from sagemaker_tensorflow.native_library import load_native_reader
from sagemaker_tensorflow.options import RECORD_FORMATS, ReaderOptions

_IS_EARLY = tuple(map(int, tf.__version__.split(".")[:2])) < early_tensorflow.SUPPORTED_BELOW
if TYPE_CHECKING or not _IS_EARLY:
    from sagemaker_tensorflow.records import RecordDataset
else:
    from sagemaker_tensorflow.early_tensorflow import EarlyRecordDataset as RecordDataset

__all__ = ["PipeModeDataset"]


class PipeModeDataset(RecordDataset):
    """A `tf.data.Dataset` of the records of a Pipe mode channel, each a scalar `tf.string`.

    Every iteration reads the next epoch: the FIFO `pipe_dir/CHANNEL_0`, then `CHANNEL_1`, and so on. `repeat()`, a new
    `iter()`, the next Keras epoch and another dataset on the same channel all count as iterations. `state_dir` holds
    the number of the next epoch.

    ```python
    dataset = PipeModeDataset(channel="training", record_format="TFRecord")
    dataset = dataset.repeat(20).prefetch(10).map(parse, num_parallel_calls=10).batch(64)
    ```

    Calling `batch()` directly on this dataset is fastest: it regroups whole vectors of records.

    Args:
        channel: Name of the channel, a key of `inputdataconfig.json`.
        record_format: `RecordIO`, `TFRecord` or `TextLine`.
        state_dir: Directory of the epoch counter; created if missing.
        pipe_dir: Directory of the FIFOs. Regular files also work.
        config_dir: Directory of `inputdataconfig.json`.
        benchmark: Print read time, bytes and GiB/s of an iteration to file descriptor 1 when its iterator is destroyed.
        benchmark_records_interval: Also print the figures after every this many records; 0 disables it.
        max_corrupted_records_to_skip: Number of consecutive TFRecords with a wrong data checksum to drop, each with a
            warning on standard error. Truncated records are not skipped: they always raise.
        max_record_bytes: Largest record size in bytes. A header that announces more raises before memory is allocated.
        strict_padding: Refuse a last RecordIO record without padding, which some writers omit.
        path_timeout_s: Seconds to wait for a missing FIFO. Waiting for data of an existing FIFO has no limit.

    Raises:
        OSError: `inputdataconfig.json` cannot be read.
        PipeModeDatasetException: The channel is missing or not in Pipe mode, or the arguments contradict each other.
        tf.errors.InvalidArgumentError: `record_format` is not one of the three.

    An invalid record raises `tf.errors.InternalError` with channel, epoch, byte offset and record number, after all
    records before it have been returned.
    """

    def __init__(
        self,
        channel: str,
        record_format: str = "RecordIO",
        state_dir: str | os.PathLike[str] = "/opt/ml/pipe_state",
        pipe_dir: str | os.PathLike[str] = "/opt/ml/input/data",
        config_dir: str | os.PathLike[str] = "/opt/ml/input/config",
        benchmark: bool | int = False,
        benchmark_records_interval: int = 0,
        max_corrupted_records_to_skip: int = 0,
        *,
        max_record_bytes: int = 256 << 20,
        strict_padding: bool | int = False,
        path_timeout_s: float = 120.0,
    ) -> None:
        Path(state_dir).mkdir(parents=True, exist_ok=True)
        self.channel = channel
        self.record_format = record_format
        self.state_dir = state_dir
        self.pipe_dir = pipe_dir
        self.config_dir = config_dir
        self.benchmark = benchmark
        self.benchmark_records_interval = benchmark_records_interval
        self.max_corrupted_records_to_skip = max_corrupted_records_to_skip
        self.input_data_config = read_input_data_config(str(config_dir))
        require_pipe_channel(channel, self.input_data_config)
        self._reader_options = ReaderOptions(
            channel=channel,
            record_format=record_format,
            state_dir=str(state_dir),
            pipe_dir=str(pipe_dir),
            benchmark=bool(benchmark),
            benchmark_records_interval=benchmark_records_interval,
            max_corrupted_records=max_corrupted_records_to_skip,
            max_record_bytes=max_record_bytes,
            strict_padding=bool(strict_padding),
            path_timeout_s=path_timeout_s,
        )
        _check(self._reader_options)
        super().__init__(_without_sharding(_chunks(self._reader_options)))


def _check(options: ReaderOptions) -> None:
    if options.max_corrupted_records > 0 and options.record_format != "TFRecord":
        raise PipeModeDatasetException(
            "max_corrupted_records_to_skip is for record_format 'TFRecord', whose records carry a checksum."
            f" Received: {options.max_corrupted_records} with record_format {options.record_format!r}"
        )
    if options.record_format not in RECORD_FORMATS:
        allowed = ", ".join(RECORD_FORMATS)
        raise tf.errors.InvalidArgumentError(
            None, None, f"Invalid record format: {options.record_format}. Allowed (in exactly this case): {allowed}"
        )
    for name in ("benchmark_records_interval", "max_corrupted_records", "max_record_bytes", "path_timeout_s"):
        value = getattr(options, name)
        if value < 0:
            raise PipeModeDatasetException(f"{name} must not be negative. Received: {value}")


def _without_sharding(dataset: tf.data.Dataset) -> tf.data.Dataset:
    if _IS_EARLY:
        return early_tensorflow.without_sharding(dataset)
    options = tf.data.Options()
    # A FIFO cannot be sharded by file; each worker of a strategy reads its instance's FIFO.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)


def _chunks(options: ReaderOptions) -> tf.data.Dataset:
    """Return a dataset of record vectors, some of them empty."""
    waits.watch_signals()
    if _IS_EARLY:
        _announce_reader("python", "the native one needs TensorFlow 2.12 or newer")
        return early_tensorflow.vectors_of(options)
    native = load_native_reader()
    _announce_reader("python" if native.ops is None else "native", native.source)
    return ChunkDataset(PythonOps(options) if native.ops is None else NativeOps(native.ops, options))


@lru_cache(maxsize=8)
def _announce_reader(reader: str, source: str) -> None:
    sys.stderr.write(f"pipemode.reader reader={reader} source={source!r} tensorflow={tf.__version__}\n")
    if reader == "python" and not _IS_EARLY:  # early TensorFlow has no native reader, so a warning would not help
        warnings.warn(
            f"PipeModeDataset reads with its reader in Python, which is slower; the native one is not available:"
            f" {source}. Install the wheel of tidemill-pipemode for this platform, or a C++17 compiler",
            PipeModeFallbackWarning,
            stacklevel=4,
        )
