"""Make the network of a job and keep it: ``python -I -S network_holder.py PLAN``.

This is a script, not a module of the stack: it is started separately, and imports only the standard library and
`core/kernel`. In a user namespace of the job it creates a network namespace with a bridge, and one per instance,
connected to the bridge by a veth pair. The remaining process is outside all of these and only holds their descriptors:
when it ends, and no process is left in the namespaces, the kernel removes them with all interfaces. Other processes
enter through its ``/proc/PID/fd``.

The process outlives the one that asked for the network, unless it was given a lifeline. Of signals that end a process
it writes what it knows to its log, since the service is not its parent and does not see how it ends.

It also forwards the one port that leads out of the job's network to the service. The port is open on the loopback of
each instance at the service's own address, so that no URL and no signature has to change.

The links are created with netlink messages, so that ``ip`` is not required.
"""

import contextlib
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

# A script has no packages on its path, and `tidemill.sandbox` imports more than a start may take.
sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120

from tidemill.core import kernel

_NEWLINK, _NEWADDR, _ERROR = 16, 20, 2
_REQUEST, _ACK, _CREATE, _EXCL = 1, 4, 0x400, 0x200
_IFF_UP = 1
_IFA_LOCAL, _IFA_ADDRESS, _IFA_BROADCAST = 2, 1, 4
_IFLA_IFNAME, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_NET_NS_FD = 3, 10, 18, 28
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_PREFIX_BITS = 16
_CHUNK_BYTES = 1 << 18
_BACKLOG = 128
_PAUSE_S = 0.1

_OF_TERMINALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
_ENDING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGXCPU)


class _Netlink:
    """Netlink messages to the network namespace in which this object was created, even if the process has moved on."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)

    def index(self, name: str) -> int:
        """Return the number of an interface."""
        answer = self._ask(18, 0, _link(0), _attribute(_IFLA_IFNAME, name.encode() + b"\0"), what=f"find {name}")
        return int(struct.unpack_from("=i", answer, 16 + 4)[0])

    def add_bridge(self, name: str) -> None:
        info = _attribute(_IFLA_LINKINFO, _attribute(_INFO_KIND, b"bridge"))
        self._add(_link(0), _attribute(_IFLA_IFNAME, name.encode() + b"\0") + info, f"make the bridge {name}")

    def add_pair(self, name: str, *, bridge: int, peer: str, namespace_fd: int) -> None:
        """Attach a veth pair to a bridge; its other end is in another namespace."""
        other = _link(0) + _attribute(_IFLA_IFNAME, peer.encode() + b"\0")
        other += _attribute(_IFLA_NET_NS_FD, struct.pack("=I", namespace_fd))
        info = _attribute(_INFO_KIND, b"veth") + _attribute(_INFO_DATA, _attribute(_VETH_PEER, other))
        attributes = _attribute(_IFLA_IFNAME, name.encode() + b"\0")
        attributes += _attribute(_IFLA_MASTER, struct.pack("=I", bridge)) + _attribute(_IFLA_LINKINFO, info)
        self._add(_link(0), attributes, f"make the pair {name}")

    def add_address(self, index: int, address: str) -> None:
        raw = socket.inet_aton(address)
        broadcast = raw[:2] + b"\xff\xff"
        header = struct.pack("=BBBBi", socket.AF_INET, _PREFIX_BITS, 0, 0, index)
        attributes = _attribute(_IFA_LOCAL, raw) + _attribute(_IFA_ADDRESS, raw) + _attribute(_IFA_BROADCAST, broadcast)
        self._ask(_NEWADDR, _CREATE | _EXCL, header, attributes, what=f"set the address {address}")

    def set_up(self, index: int) -> None:
        self._ask(_NEWLINK, 0, _link(index, _IFF_UP), b"", what="set an interface up")

    def _add(self, header: bytes, attributes: bytes, what: str) -> None:
        self._ask(_NEWLINK, _CREATE | _EXCL, header, attributes, what=what)

    def _ask(self, kind: int, flags: int, header: bytes, attributes: bytes, *, what: str) -> bytes:
        """Send one request; return the kernel's first message.

        Raises:
            OSError: The kernel refuses.
        """
        body = header + attributes
        length = 16 + len(body)
        self._socket.send(struct.pack("=IHHII", length, kind, _REQUEST | _ACK | flags, 1, 0) + body)
        first = b""
        while True:
            data = self._socket.recv(1 << 16)
            while len(data) >= 16:
                size, kind_of_answer = struct.unpack_from("=IH", data)
                number = -struct.unpack_from("=i", data, 16)[0] if kind_of_answer == _ERROR else 0
                if number:
                    raise OSError(number, f"{what}: {os.strerror(number)}")
                if kind_of_answer == _ERROR:  # the end of an answer without an error
                    return first
                first = first or data[:size]
                data = data[(size + 3) & ~3 :]

    def close(self) -> None:
        self._socket.close()


def main(arguments: list[str]) -> int:
    """Create the network, leave a process behind that holds it, and print its pid and descriptors.

    Args:
        arguments: One: the plan, as JSON.
    """
    plan = json.loads(arguments[0])
    read_fd, write_fd = os.pipe()
    if os.fork() == 0:
        os.close(read_fd)
        _hold(plan, write_fd)
    os.close(write_fd)
    with os.fdopen(read_fd, "rb") as file:
        answer = file.read()
    sys.stdout.write(answer.decode())
    return 0 if answer.startswith(b"{") else 1


def _hold(plan: dict[str, Any], answer_fd: int) -> None:
    """Run as the process that holds the network. Never returns."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd, source in ((0, null), (1, null), (2, plan["log"])):
            os.dup2(source, fd)
        os.close(plan["log"])
        os.chdir("/")
        for number in _OF_TERMINALS:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        maker = os.fork()
        if maker == 0:
            here.close()
            _make(plan, there)
        there.close()
        if plan["lifeline"] is not None:
            threading.Thread(target=_end_with, args=(plan["lifeline"],), daemon=True).start()
        held = _received(here)
        os.waitpid(maker, 0)
        for fds in held[1:]:
            for fd in fds[1:]:
                threading.Thread(target=_accept, args=(socket.socket(fileno=fd), plan["service"]), daemon=True).start()
        instances = [[address, fds[0]] for address, fds in zip(plan["addresses"], held[1:], strict=True)]
        os.write(answer_fd, json.dumps({"pid": os.getpid(), "user_fd": held[0][0], "instances": instances}).encode())
        os.close(answer_fd)
        found = signal.sigwaitinfo(_ENDING)
        _log(f"ended by {signal.Signals(found.si_signo).name} of {_name(found.si_pid)}, user {found.si_uid}")
        os._exit(128 + found.si_signo)
    except BaseException as error:  # noqa: BLE001 - whatever ends this process must be found in its log
        _log("".join(traceback.format_exception(error)))
        with contextlib.suppress(OSError):
            os.write(answer_fd, (str(error) or type(error).__name__).encode())
    finally:
        os._exit(1)


def _end_with(lifeline: int) -> None:
    """Wait until no process has the other end of the pipe, then end this process. Never returns."""
    while os.read(lifeline, 1):
        pass
    os._exit(0)


def _log(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text.rstrip()}\n".encode())


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return f"process {pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    return f"process {pid}"


def _received(connection: socket.socket) -> list[list[int]]:
    """Return the received descriptors, by message: first of the user namespace and the bridge's, then per instance."""
    held: list[list[int]] = []
    while True:
        text, fds, _, _ = socket.recv_fds(connection, 4096, 4)
        if text == b"end":
            return held
        if text != b"fds":
            raise OSError(text.decode() or "the network could not be made")
        held.append(fds)


def _make(plan: dict[str, Any], to: socket.socket) -> None:
    """Create the namespaces, send their descriptors, and exit. Never returns."""
    try:
        kernel.unshare_user(kernel.NEW_NET)
        links = _Netlink()
        links.add_bridge("job")
        bridge = links.index("job")
        links.set_up(bridge)
        socket.send_fds(to, [b"fds"], [_namespace("user"), _namespace("net")])
        for number, address in enumerate(plan["addresses"]):
            kernel.unshare(kernel.NEW_NET)
            namespace, own = _namespace("net"), _Netlink()
            links.add_pair(f"algo-{number + 1}", bridge=bridge, peer="eth0", namespace_fd=namespace)
            links.set_up(links.index(f"algo-{number + 1}"))
            own.add_address(own.index("eth0"), address)
            for name in ("lo", "eth0"):
                own.set_up(own.index(name))
            own.close()
            listeners = [_listener(plan["service"])] if plan["service"] else []
            socket.send_fds(to, [b"fds"], [namespace, *(each.fileno() for each in listeners)])
            os.close(namespace)
            for each in listeners:
                each.close()
        to.send(b"end")
    except OSError as error:
        with contextlib.suppress(OSError):
            to.send(str(error).encode() or b"the network could not be made")
    finally:
        os._exit(0)


def _listener(service: list[Any]) -> socket.socket:
    family = socket.AF_INET6 if ":" in service[0] else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((service[0], service[1]))
    listener.listen(_BACKLOG)
    return listener


def _accept(listener: socket.socket, service: list[Any]) -> None:
    """Forward every connection of one instance to the service, with sockets in the machine's network."""
    while True:
        try:
            inner, _ = listener.accept()
        except OSError:  # too many descriptors, or the client has left
            time.sleep(_PAUSE_S)
            continue
        ends = [inner]
        try:
            ends.append(socket.create_connection((service[0], service[1])))
            for source, target in (ends, reversed(ends)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=_carry, args=(source, target), daemon=True).start()
        except (OSError, RuntimeError):
            # The service is down, or no thread can be started: the client sees a closed connection, and retries.
            _close(ends)


def _close(ends: list[socket.socket]) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


def _carry(source: socket.socket, target: socket.socket) -> None:
    """Copy one direction until it ends. Each socket is closed by the direction that read from it."""
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    try:
        while count := source.recv_into(buffer):
            target.sendall(buffer[:count])
    except OSError:  # connection lost: the other direction must end, too
        with contextlib.suppress(OSError):
            source.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _link(index: int, flags: int = 0) -> bytes:
    return struct.pack("=BBHiII", socket.AF_UNSPEC, 0, 0, index, flags, flags)


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def _namespace(kind: str) -> int:
    return os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
