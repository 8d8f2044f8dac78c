"""Environments built by uv from a small lock; tests/e2e/test_wheel.py builds one from the wheel."""

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill._shared.trees import remove_tree
from tidemill.cli.gc import find_garbage
from tidemill.environments import builder as module
from tidemill.environments import layers, uv_command
from tidemill.environments.build_lock import Built
from tidemill.environments.builder import Environments
from tidemill.environments.changes import release_writable
from tidemill.environments.overlays import Overlays
from tidemill.environments.payload import RuntimeSource
from tidemill.environments.progress import BuildProgress
from tidemill.environments.uv_command import installer_variables
from tidemill.errors import EnvironmentBuildError
from tidemill.settings import Settings

LOCK = Path(module.__file__).parent / "locks" / "tf-2.21.txt"


def small_lock(*names: str) -> str:
    """Return the part of the real lock that pins ``names``."""
    text = LOCK.read_text()
    found = [re.search(rf"(?m)^{re.escape(name)}==(?:.*\\\n)+.*\n", text) for name in names]
    return "".join(match[0] for match in found if match)


@pytest.fixture(scope="module")
def locks(tmp_path_factory):
    """Return a directory of locks: a small environment, one that cannot be built, and empty ones of old versions."""
    directory = tmp_path_factory.mktemp("locks")
    (directory / "tf-2.21.txt").write_text(small_lock("pip", "six"))
    (directory / "tf-2.15.txt").write_text("six==1.0.0 --hash=sha256:" + "0" * 64 + "\n")
    (directory / "notes.txt").write_text("")
    return directory


@pytest.fixture(scope="module")
def small(tmp_path_factory, locks):
    """Return a small environment, built once."""
    environments = Environments(tmp_path_factory.mktemp("built"), locks=locks)
    lines = []
    environment = environments.ensure("tf-2.21", log=lines.append)
    return environments, environment, lines


def run_python(environment, code, **variables):
    result = subprocess.run(
        [environment.python, "-c", code], env=variables, capture_output=True, text=True, check=False, cwd="/"
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout.strip()


def test_an_environment_holds_its_lock_and_the_in_job_distributions(small):
    _, environment, lines = small
    assert lines[0] == "tidemill: building environment tf-2.21 (first use)"
    assert lines[-1].startswith("tidemill: environment tf-2.21 is ready after ")
    files = run_python(
        environment, "import six, tidemill_runtime, tidemill_serving as s; print(six.__file__, s.__file__)"
    )
    assert files.startswith(str(environment.base))
    assert "pip 2" in run_python(
        environment, "import subprocess, sys; subprocess.run([sys.executable, '-m', 'pip', '-V'])"
    )


def test_everything_is_compiled_when_it_is_built(small):
    _, environment, _ = small
    packages = environment.base / environment.site_packages.relative_to(environment.prefix)
    assert list((packages / "__pycache__").glob("six.*.pyc"))


def test_the_python_of_an_environment_is_no_link_into_hidden_places(small):
    _, environment, _ = small
    assert environment.python.readlink() == environment.python.resolve()
    assert any(environment.python.resolve().is_relative_to(path) for path in environment.read_only_paths)


def test_a_complete_environment_is_not_built_again(small, monkeypatch):
    environments, environment, _ = small
    monkeypatch.setattr(layers, "run_command", None)
    assert environments.ensure("tf-2.21", log=lambda _line: None) == environment


def test_the_startup_hook_is_silent_where_the_runtime_is_missing(small, tmp_path):
    _, environment, _ = small
    (tmp_path / "only.py").write_text((environment.site_packages / "tidemill.pth").read_text())
    assert subprocess.run([sys.executable, "-I", "-S", tmp_path / "only.py"], check=True).returncode == 0


def test_the_key_follows_lock_payload_and_python(tmp_path, locks):
    one = Environments(tmp_path, locks=locks, payload=RuntimeSource((), (), "one")).describe("tf-2.21")
    two = Environments(tmp_path, locks=locks, payload=RuntimeSource((), (), "two")).describe("tf-2.21")
    three = Environments(tmp_path, payload=RuntimeSource((), (), "one")).describe("tf-2.21")
    assert len({one.key, two.key, three.key}) == 3


def test_a_checkout_and_an_installed_tidemill_share_the_base_and_each_sees_its_own_distributions(tmp_path, locks):
    sources = [tmp_path / "one", tmp_path / "two"]
    for source in sources:
        (source / "tidemill_runtime").mkdir(parents=True)
        (source / "tidemill_runtime/__init__.py").touch()
    stages = [
        Environments(tmp_path / "e", locks=locks, payload=RuntimeSource((), (source,), str(source)))
        for source in sources
    ]
    lines = []
    first, second = [stage.ensure("tf-2.21", log=lines.append) for stage in stages]
    assert first.base == second.base
    assert first.prefix != second.prefix
    assert sum("(first use)" in line for line in lines) == 1
    for environment, source in zip((first, second), sources, strict=True):
        origin = run_python(environment, "import six, tidemill_runtime; print(tidemill_runtime.__file__)")
        assert origin.startswith(str(source))
        assert (environment.prefix / "bin/pip").resolve().is_relative_to(environment.base)

    stages[0].remove(first.key)
    assert run_python(second, "import six") == ""
    stages[1].remove(second.key)
    assert not second.base.exists()


def test_environments_share_an_aws_cli_that_is_removed_with_the_last_of_them(tmp_path):
    locks = tmp_path / "locks"
    locks.mkdir()
    (locks / "tf-2.21.txt").write_text("")
    (locks / "aws-cli.txt").write_text(small_lock("six"))
    stages = [Environments(tmp_path / "e", locks=locks, payload=RuntimeSource((), (), name)) for name in ("one", "two")]
    lines = []
    first, second = [stage.ensure("tf-2.21", log=lines.append) for stage in stages]
    assert lines.count("tidemill: building environment aws-cli (first use)") == 1
    assert first.aws_cli == second.aws_cli in second.read_only_paths
    assert list(first.aws_cli.glob("lib/python*/site-packages/six.py"))
    assert (first.prefix / "bin/aws").read_text().count(f"{first.aws_cli}/bin/") == 2
    run_python(first, "import importlib.util; assert importlib.util.find_spec('six') is None")
    (locks / "aws-cli.txt").write_text("")
    assert stages[0].describe("tf-2.21").key != first.key, "another CLI makes another environment"

    stages[0].remove(first.key)
    assert second.aws_cli.exists()
    stages[1].remove(second.key)
    assert not second.aws_cli.exists()


def test_an_environment_without_its_base_is_rebuilt(tmp_path, locks):
    environments = Environments(tmp_path, locks=locks)
    environment = environments.ensure("tf-2.21", log=lambda _line: None)
    remove_tree(environment.base)
    assert run_python(environments.ensure("tf-2.21", log=lambda _line: None), "import six") == ""


def test_the_progress_of_a_build_names_package_size_and_time_left(tmp_path):
    now_s, lines = 0.0, []
    (tmp_path / "lib").mkdir()
    progress = BuildProgress("tf-2.21", prefix=tmp_path, log=lines.append, clock=lambda: now_s)
    progress.started(2**30)  # no such process exists, so only uv's own messages count
    progress.poll()
    for line in ("Resolved 66 packages in 1.27s", "Downloading six (30.0MiB)", "Downloading big (1.5GiB)"):
        progress.line(line)
    now_s = 2.0
    progress.poll()
    progress.line(" Downloaded six")
    progress.poll()
    now_s = 4.0
    progress.poll()
    progress.line(" Downloaded big")
    now_s = 6.0
    progress.poll()
    for name in ("a.py", "b.py", "c.py", "c.pyc"):
        (tmp_path / "lib" / name).touch()
    progress.line("Installed 66 packages in 915ms")
    now_s = 9.0
    progress.poll()
    progress.line("warning: something")
    assert lines == [
        "tidemill: tf-2.21: downloading big, 0 of 1566 MB, time left unknown\r",
        "tidemill: tf-2.21: downloading big, 30 of 1566 MB, 205 s left\r",
        "tidemill: tf-2.21: 1566 MB downloaded; unpacking and installing\r",
        "tidemill: tf-2.21: compiling, 1 of 3 files, 6 s left\r",
        "warning: something",
    ]


def test_the_progress_of_a_real_build_is_read_from_what_uv_prints(tmp_path, locks, monkeypatch):
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setattr("tidemill.environments.progress._EVERY_S", 0.0)
    lines = []
    Environments(tmp_path / "e", locks=locks).ensure("tf-2.21", log=lines.append)
    states = [line for line in lines if line.endswith("\r")]
    assert any(re.search(r"downloading pip, \d of \d MB|\d MB downloaded", state) for state in states), lines
    assert any("compiling, " in state for state in states), lines
    assert [line for line in lines if line not in states] == [lines[0], lines[-1]], "uv's own lines are not shown"


def test_a_build_that_was_cut_short_is_thrown_away(tmp_path, locks):
    environments = Environments(tmp_path, locks=locks)
    prefix = environments.describe("tf-2.21").prefix
    prefix.mkdir()
    (prefix / "half").touch()
    environments.ensure("tf-2.21", log=lambda _line: None)
    assert not (prefix / "half").exists()


def test_a_failed_build_has_a_reason_and_leaves_no_files(tmp_path, locks):
    environments = Environments(tmp_path, locks=locks)
    with pytest.raises(EnvironmentBuildError, match="six"):
        environments.ensure("tf-2.15", log=lambda _line: None)
    assert not environments.describe("tf-2.15").prefix.exists()
    assert environments.built() == []


@pytest.mark.parametrize("damage", ["cut off", "another hash", "no text"])
def test_a_damaged_lock_is_told_and_the_next_build_works(tmp_path, damage):
    lock = tmp_path / "locks/tf-2.21.txt"
    lock.parent.mkdir()
    sound = small_lock("six")
    lock.write_bytes(
        {
            "cut off": sound[: sound.index("sha256:") + 20].encode(),
            "another hash": re.sub(r"[0-9a-f]{64}", "0" * 64, sound).encode(),
            "no text": bytes(range(256)),
        }[damage]
    )
    environments = Environments(tmp_path / "environments", locks=lock.parent)
    with pytest.raises(EnvironmentBuildError, match=r"the packages of .*/tf-2\.21\.txt cannot be installed: .* status"):
        environments.ensure("tf-2.21", log=lambda _line: None)
    assert environments.built() == []
    lock.write_text(sound)
    assert environments.ensure("tf-2.21", log=lambda _line: None).python.exists()


def test_an_exception_of_poll_ends_a_build(tmp_path, locks):
    class StopError(Exception):
        pass

    def poll():
        raise StopError

    environments = Environments(tmp_path, locks=locks)
    with pytest.raises(StopError):
        environments.ensure("tf-2.21", log=lambda _line: None, poll=poll)
    assert not environments.describe("tf-2.21").prefix.exists()


def test_two_processes_build_an_environment_once(tmp_path, locks):
    code = (
        "import sys; from pathlib import Path; from tidemill.environments.builder import Environments\n"
        "Environments(Path(sys.argv[1]), locks=Path(sys.argv[2])).ensure('tf-2.21', log=print)\n"
    )
    command = [sys.executable, "-I", "-c", code, str(tmp_path / "e"), str(locks)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    output = "".join(process.communicate(timeout=60)[0] for process in processes)
    assert [process.returncode for process in processes] == [0, 0]
    assert output.count("(first use)") == 1


def test_who_waits_for_a_build_sees_the_progress_of_the_builder(tmp_path, locks):
    """The builder is stopped in the middle of its progress, until the waiter has shown it."""
    code = (
        "import sys; from pathlib import Path; from tidemill.environments import progress\n"
        "from tidemill.environments.builder import Environments\n"
        "progress._EVERY_S = 0.0\n"
        "def log(line):\n"
        " print(repr(line), flush=True)\n"
        " if line.endswith('\\r'): sys.stdin.readline()\n"
        "Environments(Path(sys.argv[1]), locks=Path(sys.argv[2])).ensure('tf-2.21', log=log)\n"
    )
    command = [sys.executable, "-I", "-c", code, str(tmp_path / "e"), str(locks)]
    lines = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as builder:
        states = (ast.literal_eval(line) for line in builder.stdout)
        state = next(line for line in states if line.endswith("\r"))

        def log(line):
            lines.append(line)
            if line == state:
                builder.stdin.close()  # the builder continues, and does not stop again

        Environments(tmp_path / "e", locks=locks).ensure("tf-2.21", log=log)
        rest = list(states)
    assert builder.returncode == 0
    assert lines[0] == "tidemill: waiting for environment tf-2.21, which another process is building"
    assert lines[1] == state
    assert lines[-1] == "tidemill: environment tf-2.21 is ready"
    assert set(lines[2:-1]) <= set(rest), "each state of the waiter is one of the builder"
    assert not list((tmp_path / "e").glob("*.progress"))


def test_a_builder_that_is_killed_does_not_block_the_next_one(tmp_path, locks):
    environments = Environments(tmp_path / "e", locks=locks)
    code = (
        "import os, signal, sys; from pathlib import Path; from tidemill.environments.builder import Environments\n"
        "def log(line):\n print(line, flush=True); signal.pause()\n"
        "Environments(Path(sys.argv[1]), locks=Path(sys.argv[2])).ensure('tf-2.21', log=log)\n"
    )
    command = [sys.executable, "-I", "-c", code, str(tmp_path / "e"), str(locks)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert environments.ensure("tf-2.21", log=lambda _line: None).python.exists()


def test_environments_are_listed_and_removed_with_their_overlays(tmp_path, locks):
    environments = Environments(tmp_path, locks=locks)
    environment = environments.ensure("tf-2.21", log=lambda _line: None)
    overlay = Overlays(tmp_path / "overlays").ensure(
        environment.key, ("x",), install=lambda _prefix: None, log=print, poll=lambda: None
    )
    assert [(each.name, each.key) for each in environments.built()] == [("tf-2.21", environment.key)]
    environments.remove(environment.key)
    assert environments.built() == []
    assert not environment.prefix.exists()
    assert not overlay.prefix.exists()
    with pytest.raises(EnvironmentBuildError, match=r"no environment with key .* built are: none"):
        environments.remove(environment.key)


def test_a_failed_overlay_leaves_no_files_and_a_complete_one_is_reused(tmp_path):
    overlays = Overlays(tmp_path / "overlays")
    calls = []

    def install(prefix):
        calls.append(prefix)
        (prefix / "x").touch()
        if len(calls) == 1:
            raise EnvironmentBuildError("no network")

    def ensure():
        return overlays.ensure("base", ("digest",), install=install, log=print, poll=lambda: None)

    with pytest.raises(EnvironmentBuildError):
        ensure()
    assert not calls[0].exists()
    assert ensure() == ensure()
    assert len(calls) == 2


def nest(directory, levels):
    """Create directories below each other, with a file in the last one."""
    fd = os.open(directory, os.O_DIRECTORY)
    for _ in range(levels):
        os.mkdir("d" * 100, dir_fd=fd)
        below = os.open("d" * 100, os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("file", os.O_CREAT, dir_fd=fd))
    os.close(fd)


CHANGES = {
    "a file is written to": lambda file: file.write_text("x = 1  # more\n"),
    "a file is replaced": lambda file: (file.rename(file.with_name("old.py")), file.write_bytes(b"x = 1\n")),
    "a file of the same size and time": lambda file: (file.write_bytes(b"x = 2\n"), os.utime(file, ns=(0, 0))),
    "a file is added": lambda file: file.with_name("y.py").touch(),
    "a file is removed": lambda file: file.unlink(),
    "a deep tree is added": lambda file: nest(file.parent, 1500),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_overlay_that_a_job_has_changed_is_set_aside_and_installed_again(tmp_path, change):
    overlays, lines = Overlays(tmp_path / "overlays"), []

    def install(prefix):
        (prefix / "x.py").write_text("x = 1\n")
        os.utime(prefix / "x.py", ns=(0, 0))

    def ensure(*, writable):
        return overlays.ensure("b", (), install=install, log=lines.append, poll=lambda: None, writable=writable)

    ensure(writable=True)
    release_writable()
    assert not list((tmp_path / "overlays").glob("*.writable"))
    overlay = ensure(writable=True)
    (overlay.prefix / "__pycache__").mkdir()
    (overlay.prefix / "__pycache__/x.opt-1.pyc").touch()  # as the interpreter does by itself
    release_writable()
    overlay = ensure(writable=True)
    assert lines == []
    CHANGES[change](overlay.prefix / "x.py")
    release_writable()
    for _ in range(2):  # also a job that cannot write finds the change
        assert ensure(writable=False) == overlay
        assert (overlay.prefix / "x.py").read_text() == "x = 1\n"
        assert sorted(path.name for path in overlay.prefix.iterdir()) == ["x.py"]
    assert [line.split(" (isolation=plain)")[0] for line in lines] == [
        f"tidemill: a job has changed the shared packages in {overlay.prefix}"
    ]
    (aside,) = (tmp_path / "overlays").glob("*.changed-*")
    (garbage,) = find_garbage_of(tmp_path)
    assert garbage.path == aside
    assert garbage.remove()
    assert not aside.exists()


def find_garbage_of(environments_dir):
    """Return what `tidemill gc` would remove of a directory of environments."""
    settings = Settings(environments_dir=environments_dir, state_dir=environments_dir / "state")
    return list(find_garbage(settings, older_than_days=1, unused_for_days=30))


def test_a_use_that_ended_by_kill_is_checked_by_the_next_and_two_uses_at_once_by_the_last(tmp_path):
    overlays = Overlays(tmp_path)
    code = (
        "import pathlib, sys; from tidemill.environments.overlays import Overlays\n"
        "from tidemill.environments.changes import release_writable\n"
        "Overlays(pathlib.Path(sys.argv[1])).ensure('b', (), install=lambda prefix: (prefix / 'x').touch(), log=print,"
        " poll=lambda: None, writable=True)\n"
        "print('uses', flush=True); sys.stdin.read(1); release_writable()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"uses\n"
        overlay = overlays.ensure("b", (), install=pytest.fail, log=pytest.fail, poll=lambda: None, writable=True)
        release_writable()
        assert list(tmp_path.glob("*.writable")), "the other process still uses it"
        other.kill()
    (overlay.prefix / "x").write_text("changed")
    lines = []
    overlays.ensure("b", (), install=lambda prefix: None, log=lines.append, poll=lambda: None)
    assert len(lines) == 1
    assert not (overlay.prefix / "x").exists()
    assert not list(tmp_path.glob("*.writable"))


def test_an_environment_that_a_job_has_changed_is_set_aside_and_built_again_without_the_cache(
    tmp_path, locks, monkeypatch
):
    environments, lines, commands = Environments(tmp_path, locks=locks), [], []
    environment = environments.ensure("tf-2.21", log=lines.append, writable=True)
    release_writable()
    packages = environment.base / environment.site_packages.relative_to(environment.prefix)
    linked = next(path for path in packages.glob("pip*.dist-info/*") if path.stat().st_nlink > 1)
    os.link(linked, tmp_path / "as another environment does")  # changes its ctime
    assert environments.ensure("tf-2.21", log=lines.append, writable=True) == environment
    assert not any("has changed" in line for line in lines)
    (packages / "six.py").unlink()
    (packages / "six.py").write_text("planted = True\n")
    monkeypatch.setattr(layers, "run_command", lambda argv, **options: commands.append(argv) or run(argv, **options))
    run = uv_command.run_command
    assert environments.ensure("tf-2.21", log=lines.append) == environment
    assert sum("has changed the shared packages" in line for line in lines) == 1
    assert any("--no-cache" in argv for argv in commands)
    assert "planted" not in (packages / "six.py").read_text()
    release_writable()


def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(EnvironmentBuildError, match=r"no environment named 'tf-9'; available are tf-2\.21"):
        Environments(tmp_path).describe("tf-9")


def test_installers_see_indexes_proxies_and_certificates_but_no_keys():
    found = installer_variables(
        {
            "PIP_INDEX_URL": "a",
            "UV_INDEX": "b",
            "https_proxy": "c",
            "SSL_CERT_FILE": "d",
            "AWS_SECRET_ACCESS_KEY": "no",
            "PIP_TARGET": "no",
            "PATH": "no",
        }
    )
    found.pop("UV_SYSTEM_CERTS", None)
    assert found == {"PIP_INDEX_URL": "a", "UV_INDEX": "b", "https_proxy": "c", "SSL_CERT_FILE": "d"}


def test_installers_use_the_certificates_of_the_machine_by_default(tmp_path, monkeypatch):
    bundle = tmp_path / "ca-certificates.crt"
    monkeypatch.setattr(uv_command, "_CERTIFICATES", (tmp_path / "none", bundle))
    assert installer_variables({}) == {}
    bundle.touch()
    assert installer_variables({}) == {"UV_SYSTEM_CERTS": "true"}
    assert installer_variables({"UV_SYSTEM_CERTS": "false"}) == {"UV_SYSTEM_CERTS": "false"}


def test_a_tree_with_closed_directories_and_links_is_removed_and_nothing_else(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    tree = tmp_path / "tree"
    (tree / "closed/deep").mkdir(parents=True)
    (tree / "closed/deep/file").touch()
    (tree / "link").symlink_to(outside)
    (tree / "closed/deep").chmod(0)
    (tree / "closed").chmod(0)
    remove_tree(tree)
    assert not tree.exists()
    assert (outside / "kept").exists()
    (tmp_path / "top").symlink_to(outside)
    remove_tree(tmp_path / "top")
    assert (outside / "kept").exists()


def test_a_marker_is_valid_only_while_its_directory_exists(tmp_path):
    built = Built(tmp_path / "x-1.0")
    with built.locked(poll=lambda: None):
        built.complete({})
    assert built.marker is None
    (tmp_path / "x-1.0").mkdir()
    assert built.marker == {"version": 1}


def test_a_tidemill_without_its_payload_is_an_error(tmp_path):
    with pytest.raises(EnvironmentBuildError, match="reinstall tidemill"):
        RuntimeSource.find(wheels=tmp_path, packages=tmp_path)
