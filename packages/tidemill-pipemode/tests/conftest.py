"""A channel in a temporary directory, its writers, and both readers."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).parent))

import pytest
import tensorflow as tf

from sagemaker_tensorflow import PipeModeDataset, dataset, native_library
from scripts import ScriptServer


class Channels:
    """The directories of a job, with channels in Pipe mode."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state_dir = root / "state"
        self.pipe_dir = root / "data"
        self.config_dir = root / "config"
        self.pipe_dir.mkdir()
        self.config_dir.mkdir()
        self.configure(training="Pipe", validation="pipe", other="File")
        self.writers: list[subprocess.Popen[bytes]] = []

    def configure(self, **modes: str) -> None:
        config = {name: {"TrainingInputMode": mode} for name, mode in modes.items()}
        (self.config_dir / "inputdataconfig.json").write_text(json.dumps(config))

    def dataset(self, channel: str = "training", record_format: str = "TextLine", **options: Any) -> PipeModeDataset:
        return PipeModeDataset(
            channel, record_format, str(self.state_dir), str(self.pipe_dir), str(self.config_dir), **options
        )

    def fifo(self, epoch: int = 0, channel: str = "training") -> Path:
        path = self.pipe_dir / f"{channel}_{epoch}"
        if not path.exists():
            os.mkfifo(path)
        return path

    def write(self, stream: bytes, epoch: int = 0, channel: str = "training") -> subprocess.Popen[bytes]:
        """Start a process that writes the stream into the FIFO and exits."""
        path = self.fifo(epoch, channel)
        source = path.with_name(f".{path.name}.source")
        source.write_bytes(stream)
        return self.run('cat "$1" > "$2"', source, path)

    def run(self, script: str, *arguments: Any) -> subprocess.Popen[bytes]:
        """Start a shell process in its own process group."""
        words = ["sh", "-c", script, "sh", *map(str, arguments)]
        self.writers.append(subprocess.Popen(words, start_new_session=True))
        return self.writers[-1]

    def outcome(self, line: str, epoch: int = 0, channel: str = "training") -> None:
        directory = self.pipe_dir / ".tidemill"
        directory.mkdir(exist_ok=True)
        (directory / f"{channel}_{epoch}.outcome").write_text(line)

    def end_writers(self) -> None:
        """Kill the writers that are still running."""
        for writer in self.writers:
            if writer.poll() is None:
                os.killpg(writer.pid, signal.SIGKILL)
            writer.wait()

    @property
    def next_epoch(self) -> str:
        return (self.state_dir / ".training-pipe_mode-state").read_text()


@pytest.fixture
def channels(tmp_path: Path) -> Iterator[Channels]:
    made = Channels(tmp_path)
    yield made
    made.end_writers()


@pytest.fixture(params=["native", "python"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run each test that uses this fixture with both readers."""
    if request.param == "python":
        absent = native_library.NativeLibrary(None, None, "switched off by the test")
        monkeypatch.setattr(dataset, "load_native_reader", lambda: absent)
        monkeypatch.setattr(dataset, "_announce_reader", lambda reader, source: None)
    else:
        assert native_library.load_native_reader().ops is not None, native_library.load_native_reader().source
    return request.param


@pytest.fixture
def read() -> Callable[[tf.data.Dataset], tuple[list[bytes], str]]:
    """Return a function that reads a dataset to its end.

    The function returns the records, and the text of the InternalError that ended the dataset, or an empty text.
    """

    def one_by_one(source: tf.data.Dataset) -> tuple[list[bytes], str]:
        records: list[bytes] = []
        iterator = source.as_numpy_iterator()
        while True:
            try:
                records.append(next(iterator))
            except StopIteration:
                return records, ""
            except tf.errors.InternalError as error:
                return records, str(error)

    return one_by_one


@pytest.fixture(scope="session")
def script_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptServer]:
    server = ScriptServer(tmp_path_factory.mktemp("scripts"))
    yield server
    server.close()


@pytest.fixture
def scripts(script_server: ScriptServer) -> Iterator[ScriptServer]:
    """Yield a server that runs scripts with TensorFlow in separate processes, which end with the test."""
    yield script_server
    script_server.close_scripts()
