"""Takes over the rights and limits of another process, and never more rights than that process has."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill_runtime.warm.peer import WarmRefusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidemill_runtime.warm.peer import Peer

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_READ = 23
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
CAPABILITY_VERSION_3 = 0x20080522
MAX_CAPABILITY = 63

_libc = ctypes.CDLL(None, use_errno=True)


class _CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Data(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]


@dataclass(frozen=True)
class Rights:
    """Rights and limits of a process, read before its sandbox is joined and applied inside.

    Attributes:
        umask: File mode creation mask.
        limits: Resource limits by kind.
        cpus: Processors that it may run on.
        niceness: Scheduling priority.
        no_new_privileges: Whether exec cannot grant privileges.
        capabilities: CapInh, CapPrm, CapEff, CapBnd as bit masks.
    """

    umask: int
    limits: Mapping[int, tuple[int, int]]
    cpus: frozenset[int]
    niceness: int
    no_new_privileges: bool
    capabilities: Mapping[str, int]

    @classmethod
    def of(cls, peer: Peer) -> Rights:
        """Read the rights of a process.

        Raises:
            Refused: It has a system call filter, which cannot be copied.
        """
        status = peer.status()
        if status.get("Seccomp", "0") != "0":
            raise WarmRefusal("the job's processes have a system call filter, which only exec can take over")
        return cls(
            umask=int(status["Umask"], 8),
            limits=peer.limits(),
            cpus=frozenset(os.sched_getaffinity(peer.pid)),
            niceness=os.getpriority(os.PRIO_PROCESS, peer.pid),
            no_new_privileges=status.get("NoNewPrivs") == "1",
            capabilities={name: int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd")},
        )

    def take_on(self) -> None:
        """Apply the rights to this process, and make it die with its parent.

        Raises:
            OSError: The kernel does not allow it.
        """
        os.umask(self.umask)
        os.sched_setaffinity(0, self.cpus)
        os.setpriority(os.PRIO_PROCESS, 0, self.niceness)
        for kind, limit in self.limits.items():
            if resource.getrlimit(kind) != limit:
                resource.setrlimit(kind, limit)
        if self.no_new_privileges:
            _prctl(PR_SET_NO_NEW_PRIVS, 1)
        self._drop_capabilities()
        # A change of rights changes the owner of /proc/self and clears the death signal: set both again.
        _prctl(PR_SET_DUMPABLE, 1)
        _prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))

    def _drop_capabilities(self) -> None:
        _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
        for number in range(MAX_CAPABILITY + 1):
            if self.capabilities["CapBnd"] >> number & 1 == 0 and _libc.prctl(PR_CAPBSET_READ, number, 0, 0, 0) == 1:
                _prctl(PR_CAPBSET_DROP, number)
        header = _CapabilityHeader(CAPABILITY_VERSION_3, 0)
        data = (_Data * 2)()
        for index in range(2):
            part = {name: mask >> (32 * index) & 0xFFFFFFFF for name, mask in self.capabilities.items()}
            data[index] = _Data(part["CapEff"], part["CapPrm"], part["CapInh"])
        if _libc.capset(ctypes.byref(header), data):
            raise OSError(ctypes.get_errno(), "capset")


def enter_cgroup(peer: Peer) -> None:
    """Move this process into the peer's control group, whose limits then apply to the script.

    Raises:
        Refused: The process cannot be moved.
    """
    cgroups = peer.read("cgroup")
    if cgroups == Path("/proc/self/cgroup").read_text(encoding="utf-8"):
        return
    unified = [line[3:] for line in cgroups.splitlines() if line.startswith("0::")]
    try:
        path = Path("/sys/fs/cgroup" + unified[0]) / "cgroup.procs"
        path.write_text(str(os.getpid()), encoding="ascii")
    except (IndexError, OSError) as error:
        raise WarmRefusal("the job's control group cannot be joined") from error
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(peer.read("oom_score_adj"), encoding="ascii")


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}")
