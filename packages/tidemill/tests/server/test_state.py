"""The state directory: which services, users and directories are accepted."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill.errors import ConfigurationError
from tidemill.server.state import StateDirectory, StateInUse

HOLD = """
import sys
from pathlib import Path
from tidemill.server.state import StateDirectory
with StateDirectory(Path(sys.argv[1])).locked():
    print("held", flush=True)
    sys.stdin.read()
"""


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_tree_is_created_for_its_owner_only(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "deep" / "state")
    state.create()
    assert {mode_of(path) for path in (state.root, state.jobs, state.logs, state.objects, state.client)} == {0o700}


def test_an_empty_directory_that_is_open_to_others_is_closed(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    StateDirectory(tmp_path / "state").create()
    assert mode_of(tmp_path / "state") == 0o700


def test_creating_it_again_changes_nothing(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    state.create()
    (state.jobs / "one").mkdir()
    state.create()
    assert (state.jobs / "one").is_dir()


def test_a_directory_with_files_of_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ConfigurationError, match=r"not tidemill's \(thesis\.tex\)"):
        StateDirectory(tmp_path).create()


def test_a_directory_that_was_opened_to_others_is_refused(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    state.create()
    state.root.chmod(0o750)
    with pytest.raises(ConfigurationError, match=r"mode 0750.*chmod 700"):
        state.create()


def test_a_directory_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    state.create()
    (state.root / "state.json").write_text('{"version": 2}')
    with pytest.raises(ConfigurationError, match="has version 2"):
        state.create()


def test_a_network_file_system_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="lies on NFS"):
        StateDirectory(tmp_path / "state").create(magic=lambda _path: 0x6969)


def test_a_path_below_a_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"Not a directory.*--state-dir"):
        StateDirectory(tmp_path / "file" / "state").create()


def test_a_directory_of_another_process_is_refused_by_its_pid(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    state.create()
    command = [sys.executable, "-c", HOLD, str(state.root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        state.service_file.write_text(json.dumps({"pid": holder.pid, "url": "http://127.0.0.1:1"}))
        with pytest.raises(StateInUse, match=rf"in use by pid {holder.pid} \(http://127\.0\.0\.1:1\)"), state.locked():
            raise AssertionError("the lock was given twice")
        holder.kill()
        holder.wait()
    with state.locked():
        holder_now = state.holder()
        assert holder_now is not None
        assert holder_now.pid == os.getpid()
