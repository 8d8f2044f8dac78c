"""Feed local files into the FIFOs of a channel, to try a Pipe mode script on a laptop.

    python -m sagemaker_tensorflow.feed FILE... --channel training [--pipe-dir D] [--config-dir D] [--epochs N]

Each epoch streams the files in the order given into `PIPE_DIR/CHANNEL_EPOCH`. With `--gzip`, files whose names end in
`.gz` are decompressed. With `--config-dir`, the channel is added to `inputdataconfig.json` there, as in a job. The
feeder follows the same protocol as a job's: the next FIFO exists before the current one is opened, an outcome file
records how an epoch ended, and a lock shows that the feeder is alive, so killing this process makes the script raise.
"""

from __future__ import annotations

import argparse
import fcntl
import itertools
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from sagemaker_tensorflow.channels import read_input_data_config
from sagemaker_tensorflow.errors import PipeModeDatasetException
from sagemaker_tensorflow.feeder import Feeder, FeederStopped
from sagemaker_tensorflow.feeder_lock import ChannelIsFedError

__all__ = ["Feeder", "main"]

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    Args:
        arguments: Words of the command line. Default: those of the process.
    """
    options = _parse(arguments)
    feeder = Feeder(options.files, options.channel, options.pipe_dir, unpack=options.gzip)
    epochs = itertools.count(options.first_epoch)
    try:
        _watch_signals()
        if options.config_dir is not None:
            _enter_channel(options.config_dir, options.channel)
        feeder.feed(itertools.islice(epochs, options.epochs) if options.epochs else epochs)
    except FeederStopped as stopped:
        _print_error(f"feed: {stopped} ends the feeder of channel {options.channel}; its FIFOs are removed")
        return 128 + signal.Signals[str(stopped)]
    except (OSError, EOFError, ChannelIsFedError, PipeModeDatasetException) as error:
        _print_error(f"feed: {error}")
        return 1
    return 0


def _watch_signals() -> None:
    for number in _STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # keep what nohup or `&` in a shell script has ignored
            signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    for each in _STOPPING:
        signal.signal(each, signal.SIG_IGN)  # a second Ctrl-C must not leave FIFOs behind
    raise FeederStopped(signal.Signals(number).name)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m sagemaker_tensorflow.feed",
        description="Feed local files into the FIFOs of a Pipe mode channel.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="what an epoch consists of, in this order")
    parser.add_argument(
        "--channel", type=_channel, default="training", help="name of the channel (default: %(default)s)"
    )
    parser.add_argument(
        "--pipe-dir", type=Path, default=Path("/opt/ml/input/data"), help="where the FIFOs are made (%(default)s)"
    )
    parser.add_argument(
        "--config-dir", type=Path, help="enter the channel in inputdataconfig.json in this directory; unset: do not"
    )
    parser.add_argument("--epochs", type=_count, default=0, help="how many epochs; 0 for no end (default)")
    parser.add_argument("--first-epoch", type=_count, default=0, help="number of the first (default: %(default)s)")
    parser.add_argument("--gzip", action="store_true", help="unpack files whose names end in .gz")
    options = parser.parse_args(arguments)
    missing = [str(path) for path in options.files if not path.is_file()]
    if missing:
        parser.error(f"no such file: {', '.join(missing)}")
    return options


def _channel(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no name of a channel: 1 to 64 letters, digits, '.', '-' and '_' are allowed"
        )
    return text


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: 0 or a positive whole number is")
    return int(text)


def _enter_channel(config_dir: Path, channel: str) -> None:
    config_dir.mkdir(parents=True, exist_ok=True)
    directory = os.open(config_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)  # another channel's feeder may edit the file at the same time
        path = config_dir / "inputdataconfig.json"
        channels = read_input_data_config(str(config_dir)) if path.exists() else {}
        channels[channel] = {
            "TrainingInputMode": "Pipe",
            "S3DistributionType": "FullyReplicated",
            "RecordWrapperType": "None",
        }
        beside = path.with_name(f"{path.name}.new")
        beside.write_text(json.dumps(channels, indent=2) + "\n", encoding="utf-8")
        beside.rename(path)
    finally:
        os.close(directory)


def _print_error(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
