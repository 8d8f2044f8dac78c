"""An instance of an endpoint in this terminal, without service and object store: logs on the screen, Ctrl-C ends it.

The shim's code runs it in this process, with the same environment, sandbox, packages and model server as an endpoint.
"""

import contextlib
import os
import re
import signal
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from tidemill._shared.trees import remove_tree
from tidemill.core.clock import SystemClock
from tidemill.core.instances import InstanceRef, StreamName
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.records import Site, SpecRecord
from tidemill.instance.spec import InstanceSpec
from tidemill.shim.report import Reporter
from tidemill.shim.session import InstanceSession
from tidemill.shim.stopping import StopRequest

if TYPE_CHECKING:
    from tidemill.sdk.console import Console
    from tidemill.settings import Settings

_READY = re.compile(r"server\.ready .*address=(\S+)")
_LOADED = re.compile(r"model\.loaded name=(.*) version=(\d+) ")
_DRAIN_S = 40.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class TerminalLog:
    """Prints the log lines of an instance.

    Args:
        ready: Called when the server answers, with its URL and the names of its models.
    """

    def __init__(self, console: "Console", *, ready: Callable[[str, list[str]], None]) -> None:
        self._console = console
        self._ready = ready
        self._models: list[str] = []

    def note(self, text: str) -> None:
        """Print one or more of tidemill's own lines.

        Args:
            text: Lines without a last LF.
        """
        self.write(text.encode(errors="replace").split(b"\n"))

    def write(self, lines: Iterable[bytes]) -> None:
        """Print lines of the server, as `LineSplitter` returns them, as `Log.write`."""
        for line in lines:
            text = line.decode(errors="replace")
            self._console.log(text)
            if (loaded := _LOADED.match(text)) and loaded[1] not in self._models:
                self._models.append(loaded[1])
            elif ready := _READY.match(text):
                self._ready(ready[1], self._models)


class TerminalStop(StopRequest):
    """Records a request to stop by Ctrl-C or SIGTERM; the second one raises KeyboardInterrupt."""

    def __init__(self) -> None:
        super().__init__(*_SIGNALS)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._requested:
            raise KeyboardInterrupt
        super()._on_signal(number, frame)


@contextlib.contextmanager
def terminal_session(
    settings: "Settings",
    *,
    framework_version: str,
    serves: str,
    variables: Mapping[str, str],
    log: TerminalLog,
    visible: tuple[Path, ...],
) -> Generator[InstanceSession]:
    """Yield an instance in a temporary directory.

    Args:
        settings: Sets the isolation mode and the directory of environments.
        framework_version: TensorFlow version of the environment.
        serves: Kind of the endpoint.
        variables: Environment variables of the server.
        log: Gets the instance's lines.
        visible: Paths that the instance may read although their surroundings are hidden from it.

    Raises:
        ConfigurationError: The configured isolation mode does not work on this machine.
    """
    from tidemill.core.kernel import adopt_orphans
    from tidemill.environments.changes import release_writable
    from tidemill.sandbox import detect
    from tidemill.sandbox.private_files import credential_files

    sandbox = detect(settings.isolation).sandbox
    root = Path(tempfile.mkdtemp(prefix="tidemill-serve-"))
    ref = InstanceRef("0", 0)
    try:
        directory = InstanceDirectory.of(root, ref)
        directory.path.mkdir(parents=True)
        site = Site(
            state_dir=settings.state_dir.absolute(),
            environments_dir=settings.environments_dir.absolute(),
            backend=sandbox.name,
            private=tuple(credential_files(os.environ)),
            readable=settings.readable_paths,
        )
        spec = InstanceSpec(
            ref=ref,
            kind="endpoint",
            job_name="serve",
            hosts=("algo-1",),
            framework_version=framework_version,
            serves=serves,
            variables={"AWS_REGION": settings.region, **variables},
            grace_s=_DRAIN_S,
            log=StreamName("", ""),
        )
        clock = SystemClock()
        adopt_orphans()
        yield InstanceSession(
            directory=directory,
            task=SpecRecord(spec=spec, channels=(), log_directory=root, site=site),
            sandbox=sandbox,
            report=Reporter(directory, state_dir=root, clock=clock),
            log=log,
            stop=TerminalStop(),
            clock=clock,
            visible=visible,
        )
    finally:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # a signal must not interrupt the removal
        release_writable()
        with contextlib.suppress(OSError):
            remove_tree(root)
