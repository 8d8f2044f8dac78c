"""The listening socket."""

import os
import re
import socket

import pytest

from tidemill.errors import ConfigurationError
from tidemill.server.listener import listener_url, listening, moved_port


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
def test_port_zero_selects_a_free_port(host: str) -> None:
    with listening(host=host, port=0) as sock:
        port = sock.getsockname()[1]
        assert port > 0
        assert listener_url(sock).endswith(f":{port}")


def test_an_ipv6_address_is_in_brackets() -> None:
    with listening(host="::1", port=0) as sock:
        assert listener_url(sock) == f"http://[::1]:{sock.getsockname()[1]}"


def test_a_taken_port_is_refused_with_its_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ConfigurationError, match=rf"{port} .* by pid {os.getpid()} .*--port N or TIDEMILL_PORT"),
            listening(host="127.0.0.1", port=port),
        ):
            raise AssertionError("it listens")


def test_if_a_preferred_port_is_in_use_the_next_free_one_is_selected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wanted = taken.getsockname()[1]
        with listening(host="127.0.0.1", port=wanted, or_next=True) as sock:
            assert wanted < sock.getsockname()[1] < wanted + 100
            moved = moved_port(listener_url(sock), wanted=wanted)
            assert moved is not None
            assert re.search(rf"port {wanted} is in use by pid {os.getpid()} .*--port N or TIDEMILL_PORT", moved)


def test_a_service_on_the_wanted_or_any_port_has_not_moved() -> None:
    assert moved_port("http://127.0.0.1:8780", wanted=8780) is None
    assert moved_port("http://127.0.0.1:40000", wanted=0) is None
