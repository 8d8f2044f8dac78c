"""Ports for servers that a test starts."""

import socket


def reserved_port() -> socket.socket:
    """Return a socket that is bound to a port of 127.0.0.1, but does not listen.

    As long as it is open, the system gives the port to nothing else, but a server that sets SO_REUSEADDR can listen on
    it.
    """
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    return sock
