"""The job's view of the machine in each mode, tested from inside."""

import json
import os
import secrets
import socket
import subprocess
from pathlib import Path

import pytest

from tidemill.core.instances import Isolation
from tidemill.errors import ConfigurationError
from tidemill.instance.status import InstanceOutcome
from tidemill.sandbox import detect, sandbox_named
from tidemill.sandbox.base import Overlay, View
from tidemill.sandbox.overlays import overlay_fault

MOUNT = ("bubblewrap", "unshare")


@pytest.fixture(scope="module")
def user_home(tmp_path_factory):
    """Return a user's HOME with keys in it."""
    home = tmp_path_factory.mktemp("user")
    for name in (".aws/credentials", ".ssh/id_ed25519"):
        (home / name).parent.mkdir()
        (home / name).write_text("secret")
    return home


@pytest.fixture(params=MOUNT)
def mount_stage(request, make_stage, user_home, monkeypatch):
    monkeypatch.setenv("HOME", str(user_home))
    return make_stage(request.param)


def ask(stage, expression: str) -> object:
    """Return the value of a Python expression inside a job."""
    ref, ended = stage.run(f"import json, os, sys; from pathlib import Path; print('=', json.dumps({expression}))")
    assert ended.outcome is InstanceOutcome.COMPLETED, stage.lines(ref)
    return json.loads(stage.lines(ref)[-1].removeprefix("= "))


ATTEMPT = """
def attempt(action):
    try:
        action()
        return 'done'
    except OSError as error:
        return type(error).__name__
"""


def attempts(stage, **actions: str) -> dict[str, str]:
    """Return the result of each action inside a job: ``done``, or the name of its OSError."""
    calls = ", ".join(f"{name!r}: attempt(lambda: {action})" for name, action in actions.items())
    script = (
        f"import json, os, socket, subprocess\nfrom pathlib import Path\n{ATTEMPT}\nprint('=', json.dumps({{{calls}}}))"
    )
    ref, ended = stage.run(script)
    assert ended.outcome is InstanceOutcome.COMPLETED, stage.lines(ref)
    return json.loads(stage.lines(ref)[-1].removeprefix("= "))


def test_the_state_directory_and_the_users_keys_are_out_of_sight(mount_stage, user_home):
    state = mount_stage.state_dir
    (state / "control.db").write_text("secret")
    here = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    here.bind(str(state / "files.sock"))
    found = ask(
        mount_stage,
        # A job with several instances sees the path to their shared directory, and nothing else.
        f"[os.path.exists({str(state / 'control.db')!r}), os.path.exists({str(state / 'files.sock')!r}),"
        f" any(files for _, _, files in os.walk({str(state)!r})),"
        f" os.path.exists({str(user_home / '.aws')!r}), os.path.exists({str(user_home / '.ssh')!r}),"
        " os.path.exists('/root/.ssh'), os.path.exists(os.path.expanduser('~/.aws'))]",
    )
    here.close()
    assert found == [False] * 7


def test_a_job_cannot_read_another_job(mount_stage):
    other, _ = mount_stage.run("open('/opt/ml/model/secret', 'w').write('x')")
    path = mount_stage.directory(other).ml / "model/secret"
    assert path.exists()
    assert ask(mount_stage, f"os.path.exists({str(path)!r})") is False


def test_opt_ml_home_and_temporary_directories_are_private_and_writable(mount_stage):
    name = secrets.token_hex(8)  # no other process of this machine writes it
    directories = ("/opt/ml", "~", "/tmp", "/var/tmp", "/dev/shm")
    commands = {
        f"d{number}": f"Path(os.path.expanduser({f'{directory}/{name}'!r})).write_text('x')"
        for number, directory in enumerate(directories)
    }
    assert set(attempts(mount_stage, **commands).values()) == {"done"}
    assert not any(Path(directory, name).expanduser().exists() for directory in directories)


def test_the_machine_is_read_only(mount_stage):
    checkout = Path(__file__).parent
    written = attempts(
        mount_stage,
        usr="Path('/usr/here').write_text('x')",
        etc="Path('/etc/here').write_text('x')",
        checkout=f"Path({str(checkout / 'here')!r}).write_text('x')",
        python="(Path(os.__file__).parent / 'here').write_text('x')",
        sysctl="Path('/proc/sys/kernel/core_pattern').write_text('x')",
        sysfs="Path('/sys/kernel/mm/transparent_hugepage/enabled').write_text('never')",
    )
    assert "done" not in written.values()


def test_no_capability_is_left_and_nothing_can_be_mounted_again(mount_stage):
    status = ask(mount_stage, "Path('/proc/self/status').read_text().splitlines()")
    sets = {line.split()[0]: line.split()[1] for line in status if line.startswith(("Cap", "NoNewPrivs"))}
    assert {sets[name] for name in ("CapEff:", "CapPrm:", "CapBnd:", "CapInh:", "CapAmb:")} == {"0" * 16}
    assert sets["NoNewPrivs:"] == "1"
    script = (
        "import subprocess\n"
        "for argv in (['mount', '-o', 'remount,rw', '/'], ['umount', '/root'],\n"
        "             ['unshare', '-Urm', 'mount', '-o', 'remount,rw,bind', '/usr'],\n"
        "             ['unshare', '-Urm', 'umount', '/run']):\n"
        " print('=', subprocess.run(argv, capture_output=True).returncode != 0)\n"
    )
    ref, _ = mount_stage.run(script)
    assert mount_stage.lines(ref)[-4:] == ["= True"] * 4


IN_MOUNTED = """
import json, os, sys
with open("/opt/ml/data/file") as file:
    assert file.read() == "data"
found = {"entries": sorted(os.listdir("/")), "mnt": sorted(os.listdir("/mnt")), "links": os.path.islink("/bin")}
found["run"] = [sorted(os.listdir(path)) for path in ("/run", "/var/run")]
for path in sys.argv[1:]:
    with open(f"{path}/here", "w") as file:
        file.write(path)
for path in ("/here", "/test/here", "/mnt/here", "/usr/here"):
    try:
        open(path, "w").close()
        found[path] = "written"
    except OSError as error:
        found[path] = type(error).__name__
print(json.dumps(found))
"""


@pytest.mark.parametrize("name", MOUNT)
def test_a_directory_appears_where_the_machine_has_none(name, tmp_path, user_home, monkeypatch, need):
    need(name)
    monkeypatch.setenv("HOME", str(user_home))
    overlay = Overlay(directory=tmp_path / "overlay", target=tmp_path / "ml/data")
    layers = [overlay.directory / part for part in (Overlay.FILES, Overlay.WRITES, Overlay.WORK)]
    for directory in (overlay.target, *layers, *(tmp_path / part for part in ("home", "tmp/tmp", "tmp/var"))):
        directory.mkdir(parents=True)
    (layers[0] / "file").write_text("data")
    if fault := overlay_fault(overlay):
        pytest.skip(f"this machine cannot mount overlays: {fault}")
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n")
    asked = [
        "/tidemill-absent/checkpoint/path",
        "/mnt/tidemill-absent/x",
        "/var/tidemill-absent/x",
        "/opt/kept",
        f"{user_home}/kept",
    ]
    kept = [tmp_path / f"kept-{number}" for number in range(len(asked))]
    for directory in kept:
        directory.mkdir()
    view = View(
        host_name="algo-1",
        hosts_file=tmp_path / "hosts",
        ml=tmp_path / "ml",
        home=tmp_path / "home",
        tmp=tmp_path / "tmp",
        overlays=(overlay,),
        mounted=tuple(zip(kept, asked, strict=True)),
    )
    launch = sandbox_named(name).wrap(
        ["/usr/bin/env", "python3", "-c", IN_MOUNTED, *asked], view=view, variables={"PATH": os.environ["PATH"]}
    )
    ran = subprocess.run(
        launch.argv, env=launch.variables, pass_fds=launch.descriptors, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert [(directory / "here").read_text() for directory in kept] == asked
    assert set(found.pop("entries")) == {*(entry.name for entry in Path("/").iterdir()), "tidemill-absent"}
    assert set(found.pop("mnt")) >= {*(entry.name for entry in Path("/mnt").iterdir()), "tidemill-absent"}
    assert found.pop("links") is Path("/bin").is_symlink()
    run, var_run = found.pop("run")
    assert var_run == run  # a link to a hidden directory shows nothing
    assert found.pop("/mnt/here") in ("written", "OSError")  # an empty directory of the job, not the machine's
    assert "written" not in found.values()
    assert not Path("/mnt/here").exists()


def test_devices_and_sockets_of_the_machine_are_out_of_sight(mount_stage):
    devices = set(ask(mount_stage, "sorted(os.listdir('/dev'))"))
    assert {"null", "zero", "urandom", "shm", "pts"} <= devices
    assert not {name for name in devices if name.startswith(("vd", "sd", "nvme", "mem", "kmsg"))}
    assert ask(mount_stage, "[p for p in os.listdir('/run') if p not in ('systemd', 'resolvconf')]") == []
    assert attempts(mount_stage, null="Path('/dev/null').write_text('x')")["null"] == "done"


def test_processes_of_the_machine_are_out_of_sight(mount_stage):
    pids = ask(mount_stage, "sorted(int(n) for n in os.listdir('/proc') if n.isdigit())")
    assert pids[0] == 1
    assert len(pids) < 6
    assert os.getpid() not in pids


def test_the_host_is_named_and_its_neighbors_resolve(mount_stage):
    found = ask(
        mount_stage,
        "[__import__('socket').gethostname(),"
        " *[__import__('socket').gethostbyname(name) for name in ('algo-1', 'algo-2', 'localhost')]]",
    )
    assert found == ["algo-1", "127.0.0.1", "127.0.0.1", "127.0.0.1"]


def test_the_network_is_shared(mount_stage):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = attempts(mount_stage, connect=f"socket.create_connection(('127.0.0.1', {port})).close()")
    assert done["connect"] == "done"


def test_the_user_and_home_are_the_callers(mount_stage, user_home):
    assert ask(mount_stage, "[os.getuid(), os.path.expanduser('~'), os.environ['TMPDIR']]") == [
        os.getuid(),
        str(user_home),
        "/tmp",
    ]


def test_other_files_in_opt_remain_readable(mount_stage):
    others = sorted(path.name for path in Path("/opt").iterdir() if path.name != "ml")
    assert ask(mount_stage, "sorted(os.listdir('/opt'))") == sorted([*others, "ml"])


def test_variables_do_not_show_in_the_process_list(mount_stage):
    secret = secrets.token_hex(16)
    ref = mount_stage.start(
        "import signal; print('ready', flush=True); signal.pause()", variables={"AWS_SECRET_ACCESS_KEY": secret}
    )
    mount_stage.wait_for_line(ref, "ready")
    shown = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                shown.append((entry / "cmdline").read_bytes())
            except OSError:
                continue
    assert not [line for line in shown if secret.encode() in line]
    mount_stage.executor.kill(ref)


def test_a_users_preload_does_not_reach_the_sandbox_itself(mount_stage):
    ref, ended = mount_stage.run("print('ran')", variables={"LD_PRELOAD": "/nonexistent.so"})
    assert ended.outcome is InstanceOutcome.COMPLETED
    assert "ran" in mount_stage.lines(ref)


def test_plain_mode_uses_variables_and_hides_nothing(make_stage):
    stage = make_stage("plain")
    home, tmp, base, sees = ask(
        stage,
        "[os.environ['HOME'], os.environ['TMPDIR'], os.environ['SAGEMAKER_BASE_DIR'],"
        f" os.path.exists({str(stage.state_dir)!r})]",
    )
    directory = stage.directory(stage.refs[0])
    assert (home, tmp, base, sees) == (str(directory.home), str(directory.tmp), str(directory.ml), True)


@pytest.mark.parametrize("name", MOUNT)
def test_both_backends_work_here_and_give_mode_mount(name, need):
    need(name)
    assert detect(name).sandbox.isolation is Isolation.MOUNT


def test_auto_falls_back_to_plain_and_logs_the_reason(monkeypatch):
    from tidemill.sandbox import detection

    monkeypatch.setattr(detection, "_try", lambda sandbox: f"{sandbox.name} is forbidden")
    found = detect("auto")
    assert found.sandbox.isolation is Isolation.PLAIN
    assert "unshare is forbidden" in found.reason
    with pytest.raises(ConfigurationError, match="isolation 'mount' does not work here"):
        detect("mount")


def test_a_missing_program_is_a_reason_not_a_crash(monkeypatch, tmp_path):
    from tidemill.sandbox import bubblewrap

    monkeypatch.setattr(bubblewrap.shutil, "which", lambda _name: str(tmp_path / "bwrap"))
    with pytest.raises(ConfigurationError, match="No such file or directory"):
        detect("bubblewrap")


def test_an_unknown_sandbox_is_refused_with_the_known_ones():
    with pytest.raises(ConfigurationError, match="available are bubblewrap, unshare, plain"):
        sandbox_named("docker")
