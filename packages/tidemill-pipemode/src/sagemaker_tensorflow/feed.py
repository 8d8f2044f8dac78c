"""Feed local files into the FIFOs of a channel, to try a Pipe mode script on a laptop.

    python -m sagemaker_tensorflow.feed FILE... --channel training [--pipe-dir D] [--config-dir D] [--epochs N]

Each epoch streams the files one after the other, in the order given, into `PIPE_DIR/CHANNEL_EPOCH`. Files whose names
end in `.gz` are unpacked on the way with `--gzip`. With `--config-dir` the channel is entered in `inputdataconfig.json`
there, as a job would have it. The feeder does what the one of a job does: the next FIFO is there before the current one
is opened, and an outcome file says how an epoch went, so killing this process makes the script raise.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import gzip
import itertools
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sagemaker_tensorflow.outcome import write_outcome

__all__ = ["Feeder", "main"]

_PIPE_SIZE_BYTES = 1 << 20
_PIECE_BYTES = 1 << 18
_OPEN_INTERVAL_S = 0.05


@dataclass
class _Progress:
    """How far an epoch has come."""

    size_bytes: int = 0
    objects: int = 0
    path: Path | None = None


@dataclass(frozen=True)
class Feeder:
    """Streams the same files in every epoch."""

    files: Sequence[Path]
    """What is streamed, in this order."""
    channel: str
    """Name of the channel."""
    pipe_dir: Path
    """Directory of the FIFOs."""
    unpack: bool = False
    """Unpack files whose names end in `.gz`."""

    def feed(self, epochs: Iterable[int]) -> None:
        """Stream the epochs, each as soon as a reader opens its FIFO; return after the last.

        Raises:
            OSError: A file cannot be read. The reader is told by the outcome file.
        """
        self.pipe_dir.mkdir(parents=True, exist_ok=True)
        numbers = iter(epochs)
        following = next(numbers, None)
        if following is not None:
            self._make(following)
        while following is not None:
            epoch, following = following, next(numbers, None)
            if following is not None:
                self._make(following)  # before this epoch is opened: a repeated dataset goes on with it at once
            self._feed_one(epoch)

    def _fifo(self, epoch: int) -> Path:
        return self.pipe_dir / f"{self.channel}_{epoch}"

    def _outcome(self, epoch: int, state: str, *, size_bytes: int = 0, objects: int = 0, error: str = "") -> None:
        path = self.pipe_dir / ".tidemill" / f"{self.channel}_{epoch}.json"
        write_outcome(str(path), state, size_bytes=size_bytes, objects=objects, error=error)

    def _make(self, epoch: int) -> None:
        self._outcome(epoch, "writing")
        fifo = self._fifo(epoch)
        beside = fifo.with_name(f".{fifo.name}.new")
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
        os.mkfifo(beside)
        beside.rename(fifo)

    def _feed_one(self, epoch: int) -> None:
        fd = _open_for_writing(self._fifo(epoch))
        progress = _Progress()
        try:
            self._stream(fd, progress)
        except BrokenPipeError:
            self._finish(epoch, progress, "error", "the reader stopped before the end")
        except (OSError, EOFError) as error:
            self._finish(epoch, progress, "error", f"{progress.path}: {error}")
            raise
        else:
            self._finish(epoch, progress, "ok")
        finally:
            os.close(fd)

    def _stream(self, fd: int, progress: _Progress) -> None:
        for path in self.files:
            progress.path = path
            for piece_bytes in _send(path, fd, unpack=self.unpack):
                progress.size_bytes += piece_bytes
            progress.objects += 1

    def _finish(self, epoch: int, progress: _Progress, state: str, error: str = "") -> None:
        self._outcome(epoch, state, size_bytes=progress.size_bytes, objects=progress.objects, error=error)
        _say(
            f"pipemode.fed channel={self.channel} epoch={epoch} state={state} bytes={progress.size_bytes}"
            f" objects={progress.objects} error={error!r}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    options = _parse(arguments)
    feeder = Feeder(options.files, options.channel, options.pipe_dir, unpack=options.gzip)
    if options.config_dir is not None:
        _enter_channel(options.config_dir, options.channel)
    epochs = itertools.count(options.first_epoch)
    try:
        feeder.feed(itertools.islice(epochs, options.epochs) if options.epochs else epochs)
    except KeyboardInterrupt:
        return 130
    except (OSError, EOFError) as error:
        _say(f"feed: {error}")
        return 1
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m sagemaker_tensorflow.feed",
        description="Feed local files into the FIFOs of a Pipe mode channel.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="what an epoch consists of, in this order")
    parser.add_argument("--channel", default="training", help="name of the channel (default: %(default)s)")
    parser.add_argument(
        "--pipe-dir", type=Path, default=Path("/opt/ml/input/data"), help="where the FIFOs are made (%(default)s)"
    )
    parser.add_argument(
        "--config-dir", type=Path, help="enter the channel in inputdataconfig.json in this directory; unset: do not"
    )
    parser.add_argument("--epochs", type=int, default=0, help="how many epochs; 0 for no end (default)")
    parser.add_argument("--first-epoch", type=int, default=0, help="number of the first (default: %(default)s)")
    parser.add_argument("--gzip", action="store_true", help="unpack files whose names end in .gz")
    options = parser.parse_args(arguments)
    missing = [str(path) for path in options.files if not path.is_file()]
    if missing:
        parser.error(f"no such file: {', '.join(missing)}")
    return options


def _enter_channel(config_dir: Path, channel: str) -> None:
    config_dir.mkdir(parents=True, exist_ok=True)
    path = config_dir / "inputdataconfig.json"
    channels = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    channels[channel] = {
        "TrainingInputMode": "Pipe",
        "S3DistributionType": "FullyReplicated",
        "RecordWrapperType": "None",
    }
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(json.dumps(channels, indent=2) + "\n", encoding="utf-8")
    beside.rename(path)


def _open_for_writing(fifo: Path) -> int:
    while True:
        try:
            fd = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            break
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        time.sleep(_OPEN_INTERVAL_S)  # no reader yet, and nothing that could tell of one
    os.set_blocking(fd, True)
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):  # only a wish
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_SIZE_BYTES)
    return fd


def _send(path: Path, fd: int, *, unpack: bool) -> Iterable[int]:
    """Write a file into the FIFO; gives the sizes of the pieces as they are written."""
    if unpack and path.suffix == ".gz":
        with gzip.open(path, "rb") as source:
            while piece := source.read(_PIECE_BYTES):
                view = memoryview(piece)
                while view:
                    written = os.write(fd, view)
                    yield written
                    view = view[written:]
        return
    with path.open("rb") as source:
        while sent := os.sendfile(fd, source.fileno(), None, 1 << 30):
            yield sent


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
