"""The files of an instance that its script finds below ``/opt/ml``, and its ``/etc/hosts``."""

import fcntl
import json
import socket
import struct

from tidemill.core.files import write_json
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.spec import InstanceSpec
from tidemill.sandbox.network import INTERFACE, JobNetwork
from tidemill.shim.failures import ClientFailure
from tidemill.shim.objects import is_segment

_SIOCGIFADDR = 0x8915
_TREE = ("input/config", "input/data", "model", "output/data", "checkpoints", "code")


def make_tree(directory: InstanceDirectory, spec: InstanceSpec, network: JobNetwork | None) -> None:
    """Create the directories of an instance, its configuration files and its list of hosts.

    Args:
        network: The job's network, if it has one of its own.

    Raises:
        ClientFailure: A configuration's name cannot be a file name.
        OSError: The directory cannot be written.
    """
    for name in _TREE:
        (directory.ml / name).mkdir(parents=True, exist_ok=True)
    directory.private.mkdir(mode=0o700, exist_ok=True)
    directory.home.mkdir(mode=0o700, exist_ok=True)
    for name in ("tmp", "var"):
        (directory.tmp / name).mkdir(parents=True, mode=0o700, exist_ok=True)
    directory.hosts_file.write_text(_hosts(spec, network))
    directory.hosts_file.chmod(0o644)
    if spec.peer_secret and len(spec.hosts) > 1:
        addresses = dict(zip(spec.hosts, spec.addresses, strict=True))
        told = {"addresses": addresses, "secret": spec.peer_secret, "encrypted": spec.encrypted}
        write_json(directory.private / "peers.json", told)
    config = directory.ml / spec.config_directory
    config.mkdir(parents=True, exist_ok=True)
    for name, value in spec.config.items():
        if not is_segment(f"{name}.json"):
            raise ClientFailure(f"{name[:80]!r} cannot name a configuration file")
        if name == "resourceconfig" and (network or spec.addresses):
            interface = INTERFACE if network else interface_of(spec.addresses[spec.ref.instance_index])
            value = {**value, "network_interface_name": interface}
        text = json.dumps(value, ensure_ascii=False)
        (config / f"{name}.json").write_bytes(text.encode("utf-8", "surrogatepass"))


def interface_of(address: str) -> str:
    """Return the name of the interface that has an IPv4 address; ``lo`` if none has it.

    Args:
        address: Dotted IPv4 address.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                found = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:  # an interface without an IPv4 address
                continue
            if socket.inet_ntoa(found[20:24]) == address:
                return name
    return "lo"


def _hosts(spec: InstanceSpec, network: JobNetwork | None) -> str:
    """Return the text of ``/etc/hosts``: host names with their addresses, or with the loopback address."""
    local = "::1 localhost ip6-localhost ip6-loopback\n"
    addresses = [each[0] for each in network.instances] if network else spec.addresses
    if not addresses:
        return f"127.0.0.1 localhost {' '.join(spec.hosts)}\n{local}"
    named = zip(addresses, spec.hosts, strict=True)
    return f"127.0.0.1 localhost\n{local}" + "".join(f"{address} {name}\n" for address, name in named)
