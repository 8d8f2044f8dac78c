"""Network interfaces, found by their addresses."""

from tidemill.shim.tree import interface_of


def test_the_interface_of_an_address_is_named() -> None:
    assert interface_of("127.0.0.1") == "lo"


def test_an_address_that_no_interface_has_is_that_of_the_loopback() -> None:
    assert interface_of("203.0.113.7") == "lo"
