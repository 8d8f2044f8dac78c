"""The network of a job in isolation mode ``full``: created once per job, entered by each of its instances.

Each instance has a network namespace and an address. A bridge connects the instances, and nothing connects the bridge
to the machine. A process that outlives the service holds the network (`network_holder.py`); when it ends, the network
is gone. The only way out is one port on the loopback of each instance, which leads to the service, if the job may use
it.
"""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemill.core import faults, kernel
from tidemill.core.documents import members_of, parsed
from tidemill.core.process import ProcessId
from tidemill.instance.process_tree import MARK, marked

INTERFACE = "eth0"
"""Name of the interface inside an instance."""

_TIMEOUT_S = 60
_TRIAL = "trial/network/"
"""Start of the mark of a trial network; the identity of the process that tries it follows."""
_WORDS_BYTES = 2000
_MOST_INSTANCES = 65_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNetwork:
    """A network that a process holds.

    Attributes:
        holder: The process. When it ends, the network is gone.
        user_fd: The holder's descriptor of the user namespace that owns all other namespaces.
        instances: For each instance its IPv4 address, and the holder's descriptor of its network namespace.
    """

    holder: ProcessId
    user_fd: int
    instances: tuple[tuple[str, int], ...]

    def open(self, index: int) -> tuple[int, int]:
        """Open descriptors of the namespaces to enter, in order. The caller closes them.

        Raises:
            OSError: The network is gone.
        """
        opened: list[int] = []
        try:
            opened.append(os.open(f"/proc/{self.holder.pid}/fd/{self.user_fd}", os.O_RDONLY | os.O_CLOEXEC))
            held = self.instances[index][1]
            opened.append(os.open(f"/proc/{self.holder.pid}/fd/{held}", os.O_RDONLY | os.O_CLOEXEC))
            # Checked after opening: if the holder still lives, the descriptors are those of the holder.
            if not self.holder.alive:
                raise ProcessLookupError("the process that held the network of the job has ended")
        except OSError:
            for fd in opened:
                os.close(fd)
            raise
        return opened[0], opened[1]

    def to_json(self) -> dict[str, Any]:
        return {**members_of(self.holder), **members_of(self, without=("holder",))}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "JobNetwork":
        return parsed(cls, {**value, "holder": value})


def make_network(
    name: str,
    *,
    instances: int,
    service: tuple[str, int] | None,
    variables: Mapping[str, str],
    log: Path | None = None,
    lifeline: int | None = None,
) -> JobNetwork:
    """Create a network, and leave a process behind that holds it.

    Args:
        name: Name of the network, from which its address range is derived. Networks with equal ranges are still
            separate.
        service: Loopback address and port of the service, which instances reach under the same address; None: no
            access.
        variables: The environment of the holder.
        log: File for the holder's standard error, with its last words. Default: none.
        lifeline: Read end of a pipe: the holder ends when no process has the write end. Default: the holder outlives
            this process.

    Raises:
        OSError: The network cannot be created; the message says why.
    """
    if not 1 <= instances <= _MOST_INSTANCES:
        raise OSError(f"a network of {instances} instances cannot be made: allowed are 1 to {_MOST_INSTANCES}")
    plan: dict[str, Any] = {"addresses": [_address(name, index) for index in range(instances)], "service": service}
    script = str(Path(__file__).with_name("network_holder.py"))
    log_fd = os.open(log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    plan |= {"log": log_fd, "lifeline": lifeline}
    try:
        made = subprocess.run(
            [sys.executable, "-I", "-S", script, json.dumps(plan)],
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",
            start_new_session=True,
            pass_fds=(log_fd,) if lifeline is None else (log_fd, lifeline),
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"the network of the job was not made within {_TIMEOUT_S} s") from error
    finally:
        os.close(log_fd)
    if made.returncode:
        text = (made.stdout or made.stderr).decode(errors="replace").strip()
        raise OSError(text or f"exit status {made.returncode}")
    value = json.loads(made.stdout)
    holder = ProcessId.of(value["pid"])
    if holder is None:
        raise ProcessLookupError("the process that held the network of the job has ended")
    return JobNetwork(
        holder=holder, user_fd=value["user_fd"], instances=tuple((each[0], each[1]) for each in value["instances"])
    )


def network_failure() -> str | None:
    """Create a network, enter it and remove it. Return None if that works, else the reason why it does not.

    The network ends with this process, however that ends. What a process that has ended left behind is removed.
    """
    _end_left_trials()
    lifeline, own_end = os.pipe()
    own = ProcessId.own()
    variables = {"LANG": "C.UTF-8", MARK: f"{_TRIAL}{own.boot_id}/{own.pid}/{own.start_ticks}"}
    try:
        network = make_network("trial", instances=1, service=None, variables=variables, lifeline=lifeline)
        faults.point("sandbox.trial.made")
        namespaces = network.open(0)
        try:
            tried = subprocess.run(
                ["/bin/true"],
                preexec_fn=lambda: enter(namespaces),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        finally:
            for fd in namespaces:
                os.close(fd)
        return f"it cannot be entered: exit status {tried.returncode} inside" if tried.returncode else None
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    finally:
        os.close(lifeline)
        os.close(own_end)  # ends the holder


def network_log(file: Path) -> Path:
    """Return the file for the last words of the process that holds the network which ``file`` describes.

    Args:
        file: Path of the JSON file that describes the network.
    """
    return file.with_suffix(".log")


def network_end(network: JobNetwork, *, log: Path) -> str:
    """Return a sentence that says how the process that held a network has ended, with its last words.

    Args:
        log: File of its last words; it need not exist.
    """
    text = f"the network of the job is gone: its process {network.holder.pid} {_end_of(network.holder.pid)}"
    try:
        words = log.read_bytes()[-_WORDS_BYTES:].decode(errors="replace").strip()
    except OSError:
        words = ""
    return f"{text}; its last words: {' | '.join(words.splitlines()[-5:])}" if words else f"{text} without a word"


def _end_of(pid: int) -> str:
    """Return how a process has ended, if it can still be found out: init may have reaped it."""
    status = None
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = int(fields[49]) if fields[0] == "Z" else None
    if status is None:
        return "has ended, most likely by SIGKILL: of other signals it leaves a word"
    if os.WIFSIGNALED(status):
        return f"was killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"has ended with exit status {os.WEXITSTATUS(status)}"


def _end_left_trials() -> None:
    """Kill the holders of trial networks whose trying process has ended."""
    for pid, mark in marked(_TRIAL):
        boot_id, tried_by, start_ticks = mark.removeprefix(_TRIAL).split("/")
        if ProcessId(boot_id, int(tried_by), int(start_ticks)).has_ended_here:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def enter(namespaces: tuple[int, ...]) -> None:
    """Enter namespaces, in a process that has one thread and is about to execute another program.

    ``/sys/class/net`` shows the interfaces of the new network if the kernel allows it, else the machine's.

    Raises:
        OSError: A namespace cannot be entered.
    """
    if not namespaces:
        return
    for fd in namespaces:
        kernel.join_namespace(fd)
    with contextlib.suppress(OSError):
        kernel.unshare(kernel.NEW_MOUNT)
        kernel.make_mounts_private()
        flags = kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
        kernel.mount("sysfs", "/sys", "sysfs", flags)


def _address(name: str, index: int) -> str:
    number = index + 1  # .0.0 is the address of the network itself
    return f"10.{hashlib.sha256(name.encode()).digest()[0]}.{number >> 8}.{number & 255}"
