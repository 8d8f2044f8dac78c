"""``daemons.py COMMAND...``: run a command as an ordinary user of a Slurm cluster of four simulated nodes.

Run it as root in network, mount, host name and process namespaces of its own (``make matrix-slurm``): the daemons are
Debian's, and end with it. Each node has its own network address, ``/tmp`` and home directories; they share only the
installed programs.

The command asks for what only root can do, such as killing a node, by `tests/slurm/control.py`.
"""

import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from namespaces import HEAD, Machine, ip, make_bridge

USER = "me"
UID = 5120
HOME = Path("/home/me")
ENVIRONMENTS = HOME / ".cache/tidemill/environments"
PAGE_NETWORK = "192.168.1"
"""The addresses in docs/how-to/run-jobs-on-a-cluster.md."""
RUN = Path("/run/slurm-test")
CONF = RUN / "slurm.conf"
MUNGE = RUN / "munge"
SPECIAL = {"node2": "Feature=fast Gres=gpu:2"}
"""What one node has. Its GPUs exist in Slurm's count alone."""
CONFIGURATION = f"""
ClusterName=trial
SlurmctldHost=head({HEAD})
AuthType=auth/munge
AuthInfo=socket={MUNGE}/socket
SlurmUser=slurm
StateSaveLocation={RUN}/state
SlurmdSpoolDir={RUN}/%n
SlurmctldPidFile={RUN}/slurmctld.pid
SlurmdPidFile={RUN}/%n.pid
SlurmctldLogFile={RUN}/slurmctld.log
SlurmdLogFile={RUN}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=2,sched_interval=2,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
GresTypes=gpu
SlurmdTimeout=10
SlurmctldTimeout=10
KillWait=30
MpiDefault=none
ReturnToService=2
PlugStackConfig=/dev/null
NODES
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=20
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=OFF
PartitionName=closed Nodes=ALL MaxTime=INFINITE State=DOWN
"""


class Node(Machine):
    """A node with a slurmd."""

    def start(self) -> None:
        """Start slurmd, in a mount namespace with empty directories for files of users."""
        hide = (
            f"mount -t tmpfs -o mode=1777 tmpfs /tmp && mount -t tmpfs -o uid={UID},mode=700 tmpfs {HOME}"
            f" && install -d -o {UID} {ENVIRONMENTS.parents[1]} {ENVIRONMENTS.parent} {ENVIRONMENTS}"
            f' && mount --bind {RUN}/environments {ENVIRONMENTS} && exec "$@"'
        )
        daemon = ["slurmd", "-D", "-N", self.name]
        _start(["ip", "netns", "exec", self.name, "unshare", "--mount", "sh", "-c", hide, "sh", *daemon], self.name)


class Cluster:
    """The daemons. Each public method is a request of the command."""

    def __init__(self) -> None:
        self._nodes = {}
        for number in range(1, 5):
            node = Node(number)
            ip("-n", node.name, "address", "add", f"{PAGE_NETWORK}.{10 + number}/24", "dev", "eth0")
            self._nodes[node.name] = node
        ip("address", "add", f"{PAGE_NETWORK}.10/24", "dev", "bridge0")
        self._write_files()
        _start(["munged", "--foreground", *_munge_options()], "munged", user="munge")
        self._controller: subprocess.Popen[bytes] | None = None
        self.start_controller()
        for node in self._nodes.values():
            node.start()

    def start_controller(self) -> None:
        self._controller = _start(["slurmctld", "-D"], "slurmctld")

    def kill_controller(self) -> None:
        """Send SIGKILL to slurmctld."""
        assert self._controller is not None
        self._controller.kill()
        self._controller.wait()

    def kill_node(self, name: str) -> None:
        self._nodes[name].kill()

    def kill_agents(self, name: str) -> None:
        """Send SIGKILL to the agents on a node."""
        for pid in self._nodes[name].pids():
            with contextlib.suppress(OSError):  # the process has just ended
                if b"tidemill.node.slurm\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)

    def start_node(self, name: str) -> None:
        self._nodes[name].start()

    def cut_node(self, name: str) -> None:
        self._nodes[name].cut()

    def mend_node(self, name: str) -> None:
        self._nodes[name].mend()

    def copy(self, file: str, name: str) -> None:
        """Copy a file of the user to the same path on a node."""
        (pid, *_) = self._nodes[name].pids()
        write = ["nsenter", f"--target={pid}", "--mount", "install", "-o", USER, "/dev/stdin", file]
        subprocess.run(write, input=Path(file).read_bytes(), check=True)

    def commands(self, name: str) -> list[str]:
        """Return the command lines and the environments of a node's processes."""
        found = []
        for pid in self._nodes[name].pids():
            try:
                found += [
                    Path(f"/proc/{pid}/{file}").read_bytes().decode(errors="replace") for file in ("cmdline", "environ")
                ]
            except (FileNotFoundError, ProcessLookupError):  # the process has just ended
                continue
        return found

    def _write_files(self) -> None:
        lines = [
            f"NodeName={name} NodeAddr={node.address} NodeHostname=head CPUs=2 RealMemory=1000 {SPECIAL.get(name, '')}"
            for name, node in self._nodes.items()
        ]
        CONF.write_text(CONFIGURATION.replace("NODES", "\n".join(lines)))
        (RUN / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (RUN / "gres.conf").write_text(f"NodeName=node2 Name=gpu File={RUN}/gpu[0-1]\n")
        for number in range(2):
            os.mknod(RUN / f"gpu{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))  # the null device
        for name in (*self._nodes, "state"):
            (RUN / name).mkdir(mode=0o755)
        shutil.chown(RUN / "state", "slurm")
        for name in ("slurmctld.log", "slurmctld.pid"):
            (RUN / name).touch()
            shutil.chown(RUN / name, "slurm")
        MUNGE.mkdir(mode=0o711)
        (MUNGE / "key").write_bytes(os.urandom(128))
        (MUNGE / "key").chmod(0o600)
        for path in (MUNGE, MUNGE / "key"):
            shutil.chown(path, "munge", "munge")


def _munge_options() -> list[str]:
    files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    return [f"--{option}={MUNGE}/{file}" for option, file in files.items()]


def _start(command: list[str], name: str, *, user: str = "root") -> subprocess.Popen[bytes]:
    with (RUN / f"{name}.out").open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, user=user, group=user
        )


def _make_user() -> None:
    """Add an account, in this mount namespace only."""
    for file, line in (("passwd", f"{USER}:x:{UID}:{UID}::{HOME}:/bin/sh\n"), ("group", f"{USER}:x:{UID}:\n")):
        copy = RUN / file
        copy.write_text(Path("/etc", file).read_text() + line)
        _mount("--bind", str(copy), f"/etc/{file}")
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/home")
    HOME.mkdir(mode=0o700)
    os.chown(HOME, UID, UID)
    pwd.getpwnam(USER)


def _open_ways(paths: list[Path]) -> None:
    """Let the user reach paths below directories of root alone, in this mount namespace only."""
    home = Path.home()
    below = sorted({path.resolve() for path in paths if path.resolve().is_relative_to(home)})
    if not below or home.stat().st_mode & 0o005 == 0o005:
        return
    aside = RUN / "aside"
    for number, path in enumerate(below):
        (aside / str(number)).mkdir(parents=True)
        _mount("--bind", str(path), str(aside / str(number)))
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(home))
    for number, path in enumerate(below):
        path.mkdir(parents=True, exist_ok=True)
        _mount("--bind", str(aside / str(number)), str(path))


def _give(environments: Path) -> None:
    """Give the user, in this mount namespace only, a copy of a directory of environments whose files are root's."""
    given = RUN / "environments"
    for name in ("environments", "changes", "work"):
        (RUN / name).mkdir()
    layers = f"lowerdir={environments},upperdir={RUN}/changes,workdir={RUN}/work,metacopy=on"
    _mount("-t", "overlay", "-o", layers, "environments", str(given))
    for path in (given, *given.iterdir()):
        with contextlib.suppress(FileNotFoundError):  # of a service on this machine that has just ended
            if not path.is_dir() or path == given:
                os.chown(path, UID, UID)
            elif path.stat().st_mode & 0o005 != 0o005:  # built by a service, for its user alone
                subprocess.run(["chmod", "-R", "go+rX", path], check=True)
    subprocess.run(
        ["install", "-d", "-o", USER, ENVIRONMENTS.parents[1], ENVIRONMENTS.parent, ENVIRONMENTS], check=True
    )
    _mount("--bind", str(given), str(ENVIRONMENTS))


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _serve(cluster: Cluster, control: socket.socket) -> None:
    """Answer the requests of the command until it ends."""
    with control, control.makefile("rw") as lines:
        for line in lines:
            request: dict[str, Any] = json.loads(line)
            answer = getattr(cluster, request["do"])(*request["with"])
            lines.write(json.dumps(answer) + "\n")
            lines.flush()


def main(command: list[str]) -> int:
    if os.getuid() != 0 or os.getpid() > 100:
        sys.exit("run this as root, by `make matrix-slurm`: it needs namespaces of its own")
    missing = [name for name in ("slurmctld", "slurmd", "sbatch", "munged") if shutil.which(name) is None]
    if missing:
        sys.exit(f"{', '.join(missing)} missing: apt install slurmctld slurmd slurm-client munge")
    socket.sethostname("head")
    RUN.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(RUN))
    make_bridge()
    environments = Path(os.environ["TIDEMILL_ENVIRONMENTS_DIR"])
    _make_user()
    _open_ways([environments, Path(sys.base_prefix).parent])
    _give(environments)
    os.environ["SLURM_CONF"] = str(CONF)
    cluster = Cluster()
    here, there = socket.socketpair()
    variables = {
        **{name: value for name, value in os.environ.items() if name not in ("XDG_CACHE_HOME", "XDG_DATA_HOME")},
        "HOME": str(HOME),
        "USER": USER,
        "TIDEMILL_ENVIRONMENTS_DIR": str(ENVIRONMENTS),
        "SLURM_TEST_CONTROL": str(there.fileno()),
    }
    process = subprocess.Popen(
        command, env=variables, pass_fds=(there.fileno(),), user=UID, group=UID, extra_groups=[], umask=0o022
    )
    there.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _serve(cluster, here)
    return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
