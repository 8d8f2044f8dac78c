"""PipeModeDataset: a Pipe mode channel as a `tf.data.Dataset`.

The reader gives vectors of records, as many as have arrived; TensorFlow's own datasets around it make single records
of them, or batches. An iterator takes its epoch when it is first asked for a record, and lets it go when it goes.
"""

from __future__ import annotations

import sys
import warnings
from functools import lru_cache
from pathlib import Path

import tensorflow as tf

from sagemaker_tensorflow import waits
from sagemaker_tensorflow.channels import read_input_data_config, require_pipe_channel
from sagemaker_tensorflow.chunks import ChunkDataset, NativeOps, PythonOps
from sagemaker_tensorflow.errors import PipeModeDatasetException, PipeModeFallbackWarning
from sagemaker_tensorflow.native_library import load_native_reader
from sagemaker_tensorflow.options import RECORD_FORMATS, ReaderOptions

__all__ = ["PipeModeDataset"]

_VECTORS_AHEAD = 2  # one is about a megabyte, or all that has arrived


class _RecordDataset(tf.data.Dataset):
    """Single records, made of vectors of them; what can be done to whole vectors is done to those."""

    def __init__(self, vectors: tf.data.Dataset) -> None:
        self._vectors = vectors
        self._records = vectors.unbatch()
        super().__init__(self._records._variant_tensor)

    def batch(
        self,
        batch_size: int | tf.Tensor,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> tf.data.Dataset:
        """Batches of records, made of whole vectors of them; the arguments are those of `tf.data.Dataset.batch`.

        Batching a vector is a copy of pointers, so `num_parallel_calls` has nothing to speed up, and the order is
        always that of the stream.
        """
        return self._vectors.rebatch(batch_size, drop_remainder=drop_remainder, name=name)

    def prefetch(self, buffer_size: int | tf.Tensor | None, name: str | None = None) -> tf.data.Dataset:
        """Read ahead, by vectors: handing each record from thread to thread would cost more than reading it.

        Args:
            buffer_size: As of `tf.data.Dataset.prefetch`. A vector has room for many records, so two are enough.
            name: Of the operation.
        """
        if not isinstance(buffer_size, int):
            return super().prefetch(buffer_size, name=name)
        return _RecordDataset(self._vectors.prefetch(min(buffer_size, _VECTORS_AHEAD), name=name))

    def repeat(self, count: int | tf.Tensor | None = None, name: str | None = None) -> tf.data.Dataset:
        """Go on with the next epoch, `count` times in all or without end; an empty epoch ends the latter."""
        vectors = self._vectors
        if not isinstance(count, int) or count < 0:
            # TensorFlow's endless repeat ends at an empty epoch, which a vector of no records would hide.
            vectors = vectors.filter(_is_not_empty)
        return _RecordDataset(vectors.repeat(count, name=name))

    @property
    def element_spec(self) -> tf.TensorSpec:
        """A scalar `tf.string`."""
        return tf.TensorSpec([], tf.string)

    def _inputs(self) -> list[tf.data.Dataset]:
        return [self._records]


class PipeModeDataset(_RecordDataset):
    """A `tf.data.Dataset` of the records of a Pipe mode channel, each a scalar `tf.string`.

    Every iteration reads the next epoch: the FIFO `pipe_dir/CHANNEL_0`, then `CHANNEL_1`, and so on, whether it is
    `repeat()`, another `iter()`, another epoch of Keras or another dataset on the same channel. The number is kept in
    `state_dir`.

    ```python
    dataset = PipeModeDataset(channel="training", record_format="TFRecord")
    dataset = dataset.repeat(20).prefetch(10).map(parse, num_parallel_calls=10).batch(64)
    ```

    `batch()` directly on this dataset is the fastest form: it makes batches of whole vectors of records.

    Args:
        channel: Name of the channel, a key of `inputdataconfig.json`.
        record_format: `RecordIO`, `TFRecord` or `TextLine`.
        state_dir: Directory of the epoch counter; made if it is not there.
        pipe_dir: Directory of the FIFOs. Regular files work as well.
        config_dir: Directory of `inputdataconfig.json`.
        benchmark: Print read time, bytes and GiB/s of an iteration on file descriptor 1 when its iterator goes.
        benchmark_records_interval: Print the figures of every so-manieth record; 0 for none.
        max_corrupted_records_to_skip: How many TFRecords in a row with a wrong data checksum are dropped, each with a
            warning on standard error. A truncated record is no corrupt one: it always raises.
        max_record_bytes: A record that announces more is an error, before memory is taken for it.
        strict_padding: Refuse a last RecordIO record without its padding, which some writers leave out.
        path_timeout_s: Seconds for which a FIFO may be absent. One that is there may be silent for ever.

    Raises:
        OSError: `inputdataconfig.json` cannot be read.
        PipeModeDatasetException: The channel is not there or not in Pipe mode, or the arguments do not go together.
        tf.errors.InvalidArgumentError: `record_format` is none of the three.

    While records are read, whatever is wrong with them raises `tf.errors.InternalError`, with channel, epoch, byte
    offset and record number, after all records before it have been given.
    """

    def __init__(
        self,
        channel: str,
        record_format: str = "RecordIO",
        state_dir: str = "/opt/ml/pipe_state",
        pipe_dir: str = "/opt/ml/input/data",
        config_dir: str = "/opt/ml/input/config",
        benchmark: bool = False,
        benchmark_records_interval: int = 0,
        max_corrupted_records_to_skip: int = 0,
        *,
        max_record_bytes: int = 256 << 20,
        strict_padding: bool = False,
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


def _is_not_empty(records: tf.Tensor) -> tf.Tensor:
    return tf.size(records) > 0


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
    options = tf.data.Options()
    # A FIFO cannot be split by file; each worker of a strategy reads its own.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)


def _chunks(options: ReaderOptions) -> tf.data.Dataset:
    """A dataset of vectors of records, some of them empty."""
    waits.watch_signals()
    native = load_native_reader()
    _announce_reader("python" if native.ops is None else "native", native.source)
    return ChunkDataset(PythonOps(options) if native.ops is None else NativeOps(native.ops, options))


@lru_cache(maxsize=8)
def _announce_reader(reader: str, source: str) -> None:
    sys.stderr.write(f"pipemode.reader reader={reader} source={source!r} tensorflow={tf.__version__}\n")
    if reader == "python":
        warnings.warn(
            f"PipeModeDataset reads with its reader in Python, which is slower; the native one is not to be had:"
            f" {source}. Install the wheel of tidemill-pipemode for this platform, or a C++17 compiler",
            PipeModeFallbackWarning,
            stacklevel=4,
        )
