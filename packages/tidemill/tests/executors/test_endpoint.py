"""Instances of endpoints: a server that is kept running."""

import io
import socket
import tarfile

from tidemill.core.limits import InstanceLimits
from tidemill.core.socket_paths import short_path
from tidemill.instance.status import InstanceOutcome, StopReason

SERVE = """
import os, signal, socket, sys
path = sys.argv[sys.argv.index('--unix-socket') + 1]
server = socket.socket(socket.AF_UNIX); server.bind(path); server.listen()
def drain(*_):
    print('drained', flush=True); sys.exit(0)
signal.signal(signal.SIGTERM, drain)
print('serving', flush=True)
while True:
    connection, _ = server.accept()
    with connection:
        if connection.recv(16) == b'die': os.kill(os.getpid(), signal.SIGKILL)
        connection.sendall(b'pong')
"""


def model(stage, script):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        info = tarfile.TarInfo("serve.py")
        info.size = len(script.encode())
        archive.addfile(info, io.BytesIO(script.encode()))
    return stage.stored(buffer.getvalue(), name="model.tar.gz", uri="s3://bucket/model.tar.gz")


def call(stage, ref, message=b"ping"):
    with socket.socket(socket.AF_UNIX) as client, short_path(stage.executor.server_address(ref).path) as path:
        client.connect(path)
        client.sendall(message)
        return client.recv(16)


def test_a_model_is_unpacked_and_served_on_a_unix_socket_and_drained(any_stage):
    ref = any_stage.start(kind="endpoint", model=model(any_stage, SERVE))
    any_stage.wait_for_line(ref, "serving")
    assert call(any_stage, ref) == b"pong"
    assert any_stage.executor.observe(ref).phases[-1].status == "Serving"
    any_stage.executor.stop(ref, reason=StopReason.STOPPED)
    ended = any_stage.ended(ref)
    assert ended.outcome is InstanceOutcome.STOPPED
    assert "drained" in any_stage.lines(ref)


def test_a_server_that_dies_is_started_again(any_stage):
    ref = any_stage.start(kind="endpoint", model=model(any_stage, SERVE))
    any_stage.wait_for_line(ref, "serving")
    assert call(any_stage, ref, b"die") == b""
    any_stage.wait(ref, lambda: any_stage.lines(ref).count("serving") == 2)
    assert call(any_stage, ref) == b"pong"
    assert any_stage.executor.observe(ref).running
    any_stage.executor.kill(ref)


def test_a_server_that_keeps_dying_fails_with_the_end_of_its_output(stage):
    ref, ended = stage.run(kind="endpoint", model=model(stage, "raise ValueError('no such layer')"))
    assert ended.outcome is InstanceOutcome.FAILED
    assert ended.failure.startswith("AlgorithmError: the model server ended 5 times within 60 s, last with status 1")
    assert ended.failure.endswith("ValueError: no such layer")
    assert sum("starting the model server again" in line for line in stage.lines(ref)) == 4


GROWING = (
    "import os, time\n"
    "print('CPUS', len(os.sched_getaffinity(0)), flush=True)\n"
    "held = []\n"
    "while True: held.append(bytearray(b'1') * (20 << 20)); time.sleep(0.02)\n"
)


def test_a_model_server_with_too_much_memory_is_killed_started_again_and_fails_at_last(stage):
    limits = InstanceLimits(memory_bytes=150 << 20, cpus=1, source="ml.tiny")
    ref, ended = stage.run(kind="endpoint", model=model(stage, GROWING), limits=limits)
    assert ended.outcome is InstanceOutcome.FAILED
    head = "OutOfMemory: Process killed by SIGKILL (signal 9): the instance has a memory limit of 150 MiB (ml.tiny)"
    assert ended.failure.startswith(f"AlgorithmError: {head}, and its peak was "), ended.failure
    lines = stage.lines(ref)
    assert sum(head in line for line in lines) == lines.count("tidemill: starting the model server again") == 4
    assert lines.count("CPUS 1") == 5


def test_a_broken_archive_fails_the_endpoint_and_names_it(stage):
    archive = stage.stored(b"this is not an archive", name="model.tar.gz", uri="s3://bucket/model.tar.gz")
    _, ended = stage.run(kind="endpoint", model=archive)
    assert ended.failure.startswith("ClientError: s3://bucket/model.tar.gz: InvalidArchive: ")


def test_the_archive_of_a_model_is_brought_to_a_running_server_and_replaced(stage):
    reads = "connection.sendall(open(sys.argv[sys.argv.index('--archives') + 1] + '/m.tar.gz', 'rb').read())"
    ref = stage.start(kind="endpoint", model=model(stage, SERVE.replace("connection.sendall(b'pong')", reads)))
    stage.wait_for_line(ref, "serving")
    for content in (b"one", b"another"):
        archive = stage.stored(content, name="model.tar.gz", uri="s3://bucket/models/m.tar.gz")
        stage.executor.deliver(ref, archive, name="m.tar.gz")
        assert call(stage, ref) == content
    stage.executor.kill(ref)


def test_the_server_of_an_endpoint_gets_no_keys_of_the_services_own(any_stage, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.setenv(name, "of the service")
    script = "import os\nprint('AWS', sorted(name for name in os.environ if name.startswith('AWS_')))\n" + SERVE
    ref = any_stage.start(kind="endpoint", model=model(any_stage, script), variables={"AWS_REGION": "us-west-2"})
    any_stage.wait_for_line(ref, "serving")
    assert "AWS ['AWS_REGION']" in any_stage.lines(ref)
    any_stage.executor.kill(ref)


SHOW = SERVE.replace(
    "print('serving', flush=True)",
    """
try: open('/opt/ml/model/new', 'w')
except OSError as error: print('read-only:', error.strerror)
print('inode', os.stat('/opt/ml/model/serve.py').st_ino, flush=True)
print('serving', flush=True)""",
)


def test_a_model_is_unpacked_once_for_two_instances_and_removed_with_the_last(stage):
    show = model(stage, SHOW)
    first, second = (stage.start(kind="endpoint", model=show) for _ in range(2))
    for ref in (first, second):
        stage.wait_for_line(ref, "serving")
        assert "read-only: Read-only file system" in stage.lines(ref)
    inodes = {line for ref in (first, second) for line in stage.lines(ref) if line.startswith("inode ")}
    assert len(inodes) == 1
    shared = "tidemill: the model is shared with an instance that has unpacked it"
    assert [shared in stage.lines(ref) for ref in (first, second)].count(True) == 1
    (kept,) = (stage.state_dir / "models").iterdir()
    assert call(stage, first) == call(stage, second) == b"pong"
    stage.executor.stop(first, reason=StopReason.STOPPED)
    assert stage.ended(first).outcome is InstanceOutcome.STOPPED
    assert call(stage, second) == b"pong"
    assert kept.is_dir()
    stage.executor.stop(second, reason=StopReason.STOPPED)
    assert stage.ended(second).outcome is InstanceOutcome.STOPPED
    assert list(kept.parent.iterdir()) == []


def test_a_model_whose_first_instance_was_killed_serves_the_next(stage):
    show = model(stage, SHOW)
    first = stage.start(kind="endpoint", model=show)
    stage.wait_for_line(first, "serving")
    stage.executor.kill(first)
    stage.wait(first, lambda: not stage.executor.observe(first).running)
    second = stage.start(kind="endpoint", model=show)
    stage.wait_for_line(second, "serving")
    assert call(stage, second) == b"pong"
    stage.executor.stop(second, reason=StopReason.STOPPED)
    assert stage.ended(second).outcome is InstanceOutcome.STOPPED
    assert list((stage.state_dir / "models").iterdir()) == []


def test_a_broken_archive_leaves_nothing_to_share(stage):
    broken = stage.stored(b"not an archive", name="model.tar.gz", uri="s3://bucket/broken.tar.gz")
    for _ in range(2):
        _, ended = stage.run(kind="endpoint", model=broken)
        assert "s3://bucket/broken.tar.gz" in ended.failure
        assert list((stage.state_dir / "models").iterdir()) == []
