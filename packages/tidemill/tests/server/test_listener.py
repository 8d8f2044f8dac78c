"""The listening socket."""

import os
import socket

import pytest

from tidemill.errors import ConfigurationError
from tidemill.server.listener import listener_url, listening


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.10", "example.com", ""])
def test_a_host_that_others_could_reach_is_refused(host: str) -> None:
    with pytest.raises(ConfigurationError, match=r"not a loopback address.*ssh -L"), listening(host=host, port=0):
        raise AssertionError("it listens")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
def test_port_zero_takes_a_free_port(host: str) -> None:
    with listening(host=host, port=0) as sock:
        port = sock.getsockname()[1]
        assert port > 0
        assert listener_url(sock).endswith(f":{port}")


def test_an_ipv6_address_stands_in_brackets() -> None:
    with listening(host="::1", port=0) as sock:
        assert listener_url(sock) == f"http://[::1]:{sock.getsockname()[1]}"


def test_a_taken_port_is_refused_with_its_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ConfigurationError, match=rf"port {port} .* in use by pid {os.getpid()} .*--port"),
            listening(host="127.0.0.1", port=port),
        ):
            raise AssertionError("it listens")
