"""Files of the machine that jobs do not see: credentials, keys, and the state of this user's other services."""

import json
import os
import tempfile
from pathlib import Path

import pytest

from tidemill.core.state_directories import known_state_directories, register_state_directory
from tidemill.environments.uv_command import installer_variables
from tidemill.instance.status import InstanceOutcome
from tidemill.sandbox import View
from tidemill.sandbox.mounts import MountKind, mounts_of
from tidemill.sandbox.private_files import credential_files, system_secrets
from tidemill.server.executors import private_paths
from tidemill.settings import Settings
from tidemill.shim.packages import with_installer_files

READ = """
import json
def read(path):
    try:
        return open(path).read()
    except OSError as error:
        return type(error).__name__
print('=', json.dumps([read(path) for path in {paths}]), flush=True)
"""


@pytest.fixture
def outside():
    """Yield a directory that no job would miss: temporary directories are private anyway."""
    with tempfile.TemporaryDirectory(prefix=".private-", dir=Path(__file__).parent) as name:
        yield Path(name).resolve()


@pytest.mark.parametrize("backend", ["bubblewrap", "unshare"])
def test_a_job_reads_no_credentials_and_no_other_services_files_except_what_a_setting_names(
    make_stage, outside, backend, monkeypatch
):
    other, named, open_file, data = outside / "state", outside / "credentials", outside / "netrc", outside / "data.csv"
    other.mkdir()
    for path in (other / "keys.json", other / "shown.csv", named, open_file, data):
        path.write_text(path.name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(named))
    monkeypatch.setenv("NETRC", str(open_file))
    private, readable = tuple(credential_files(os.environ)), (open_file, other / "shown.csv")
    stage = make_stage(backend, private=private, readable=readable)
    register_state_directory(other, environments_dir=stage.environments_dir)
    shadow = Path("/etc/shadow")
    paths = [other / "keys.json", named, shadow, other / "shown.csv", open_file, data]
    ref, ended = stage.run(READ.format(paths=[str(path) for path in paths]), hosts=("algo-1",))
    assert ended.outcome is InstanceOutcome.COMPLETED, stage.lines(ref)
    [line] = [line for line in stage.lines(ref) if line.startswith("= ")]
    state, credentials, passwords, *shown = json.loads(line[2:])
    assert state == "FileNotFoundError"
    assert credentials == "PermissionError"
    assert passwords in ("PermissionError", "FileNotFoundError")
    assert shown == ["shown.csv", "netrc", "data.csv"]


def test_secrets_of_the_machine_are_hidden_by_class(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/")
    for name in ("etc/ssh/ssh_host_ed25519_key", "etc/ssh/ssh_host_ed25519_key.pub", "etc/shadow", ".aws/credentials"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = {str(path.relative_to(tmp_path)) for path in system_secrets(tmp_path)}
    assert {"etc/shadow", "etc/ssh/ssh_host_ed25519_key", ".aws", ".ssh", ".netrc", ".kube", ".docker"} <= found
    assert "etc/ssh/ssh_host_ed25519_key.pub" not in found


def view(tmp_path: Path, **members: tuple[Path, ...]) -> View:
    for name in ("ml", "home", "tmp"):
        (tmp_path / name).mkdir()
    return View(
        host_name="algo-1",
        hosts_file=tmp_path / "hosts",
        ml=tmp_path / "ml",
        home=tmp_path / "home",
        tmp=tmp_path / "tmp",
        **members,
    )


def test_what_a_hidden_directory_contains_is_not_hidden_again_and_devices_never(tmp_path, outside):
    (outside / "state/keys").mkdir(parents=True)
    hidden = (outside / "state", outside / "state/keys", Path(os.devnull), tmp_path, Path("/usr"))
    mounts = mounts_of(view(tmp_path, hidden=hidden))
    empty = [mount.target for mount in mounts if mount.kind is MountKind.EMPTY]
    assert str(outside / "state") in empty
    assert not {str(outside / "state/keys"), str(tmp_path), "/usr"} & set(empty)
    assert os.devnull not in [mount.target for mount in mounts]


def test_a_hidden_directory_below_opt_stays_hidden(tmp_path):
    """The other directories of /opt are mounted beside /opt/ml, and must not show what is hidden in them."""
    below = [path for path in Path("/opt").iterdir() if path.is_dir() and path.name != "ml"]
    if not below:
        pytest.skip("this machine has nothing in /opt")
    hidden = below[0].resolve()
    kinds = [mount.kind for mount in mounts_of(view(tmp_path, hidden=(hidden,))) if mount.target == str(hidden)]
    assert kinds[-1] is MountKind.EMPTY


def test_an_installation_shows_settings_of_installers_and_no_other_programs_credentials(tmp_path):
    index, certificates = tmp_path / "config/pip/pip.conf", tmp_path / "certificates.pem"
    for path in (index, tmp_path / "config/gh/hosts.yml", certificates):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret")
    settings = {
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PIP_CERT": str(certificates),
        "UV_PUBLISH_TOKEN": "secret",
    }
    found = installer_variables(settings)
    assert {name: found.get(name) for name in settings} == {**settings, "UV_PUBLISH_TOKEN": None}
    assert with_installer_files(view(tmp_path), found).read_only == (index, certificates)


def test_the_state_directories_of_a_users_services_are_known_as_long_as_they_exist(tmp_path):
    environments, states = tmp_path / "environments", [tmp_path / name for name in ("one", "two\n")]
    assert known_state_directories(environments) == ()
    for state in states:
        state.mkdir()
        register_state_directory(state, environments_dir=environments)
    register_state_directory(states[0], environments_dir=environments)
    assert set(known_state_directories(environments)) == set(states)
    states[1].rmdir()
    register_state_directory(states[0], environments_dir=environments)
    assert known_state_directories(environments) == (states[0],)


def test_the_settings_name_what_to_hide_and_never_show_the_state_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/etc/kube.yaml:relative.yaml")
    settings = Settings(tls_key=tmp_path / "key.pem", readable_paths=("/data",), state_dir=tmp_path / "state")
    assert {tmp_path / "key.pem", Path("/etc/kube.yaml")} <= set(private_paths(settings))
    assert Path("relative.yaml") not in private_paths(settings)
    with pytest.raises(ValueError, match="'data' is not an absolute path"):
        Settings(readable_paths=("data",))
    (tmp_path / "link").symlink_to(tmp_path)
    for path in (tmp_path, tmp_path / "state", tmp_path / "state/objects", tmp_path / "link"):
        with pytest.raises(ValueError, match="would show jobs the state directory"):
            Settings(readable_paths=(str(path),), state_dir=tmp_path / "state")
