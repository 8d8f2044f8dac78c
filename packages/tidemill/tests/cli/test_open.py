"""`tidemill open`: the address that it prints."""

import pytest

from tidemill.cli.open import _has_screen, _numeric


@pytest.mark.parametrize(
    ("url", "numeric"),
    [
        ("http://localhost:8780", "http://127.0.0.1:8780"),
        ("http://LOCALHOST:8780/", "http://127.0.0.1:8780/"),
        ("http://localhost", "http://127.0.0.1:80"),
        ("http://127.0.0.1:8780", "http://127.0.0.1:8780"),
        ("http://[::1]:8780", "http://[::1]:8780"),
        ("https://localhost:8780", "https://localhost:8780"),
        ("https://tidemill.example", "https://tidemill.example"),
    ],
)
def test_a_token_goes_to_no_other_user_who_listens_on_the_port_of_another_address(url: str, numeric: str) -> None:
    assert _numeric(url) == numeric


def test_without_a_screen_no_browser_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert not _has_screen()
    monkeypatch.setenv("DISPLAY", ":0")
    assert _has_screen()
