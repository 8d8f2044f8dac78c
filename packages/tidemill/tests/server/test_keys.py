"""The owner's key pair."""

import re
import stat
from pathlib import Path

import pytest

from tidemill.errors import ConfigurationError
from tidemill.server.keys import Keys


def test_keys_are_created_once_in_a_private_file(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    keys = Keys.load_or_create(file)
    assert re.fullmatch(r"AKIA[A-Z2-7]{16}", keys.access_key_id)
    assert re.fullmatch(r"[A-Za-z0-9]{40}", keys.secret_access_key)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert Keys.load_or_create(file) == keys


def test_two_services_have_different_keys() -> None:
    assert Keys.generate() != Keys.generate()


def test_the_secret_is_not_shown() -> None:
    keys = Keys.generate()
    assert keys.secret_access_key not in repr(keys)


def test_there_are_no_keys_before_the_first_start(tmp_path: Path) -> None:
    assert Keys.load(tmp_path / "keys.json") is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_keys_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "keys.json"
    Keys.load_or_create(file)
    file.chmod(mode)
    with pytest.raises(ConfigurationError, match=rf"mode {mode:04o}.*chmod 600"):
        Keys.load(file)


@pytest.mark.parametrize("content", ["", "{", "{}", "[]", '{"access_key_id": "A", "secret_access_key": ""}'])
def test_a_damaged_keys_file_is_refused_not_replaced(tmp_path: Path, content: str) -> None:
    file = tmp_path / "keys.json"
    file.write_text(content)
    file.chmod(0o600)
    with pytest.raises(ConfigurationError, match="does not hold a key pair"):
        Keys.load_or_create(file)
    assert file.read_text() == content
