"""The network interfaces of this machine by their addresses."""

import fcntl
import socket
import struct

__all__ = ["interface_of"]

_SIOCGIFADDR = 0x8915


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
