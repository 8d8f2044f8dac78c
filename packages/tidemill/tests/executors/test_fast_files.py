"""FastFile mode with a remote S3: real shims and sandboxes, real FUSE mounts, and a second service as the remote S3."""

import gc
import hashlib
import json
import os
import queue
import shutil
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidemill.instance import transfers
from tidemill.instance.spec import SERVICE, ChannelSpec, RemoteObject
from tidemill.instance.status import InstanceOutcome, StopReason
from tidemill.sandbox import detect, fuse_fault

fault = fuse_fault(detect("auto").sandbox)
pytestmark = pytest.mark.skipif(bool(fault), reason=f"FUSE: {fault}")

BASE = (
    "import hashlib, json, os, sys, threading, time; from pathlib import Path\n"
    "data = Path('/opt/ml/input/data/train')\n"
    "digest = lambda name: hashlib.md5((data / name).read_bytes()).hexdigest()\n"
)
MIB = 1 << 20


def channel(*objects: Any) -> ChannelSpec:
    return ChannelSpec(name="train", input_mode="FastFile", objects=list(objects))


def gets(remote: Any) -> list[str]:
    return [line for request in remote.wire.requests for line in request.split("\r\n") if line.startswith("GET /")]


def ranges(remote: Any) -> list[str]:
    lines = [line for request in remote.wire.requests for line in request.split("\r\n")]
    return [line.partition("=")[2] for line in lines if line.startswith("Range: ")]


def servers_of(stage: Any, ref: Any) -> list[int]:
    """Return the processes that serve the files of an instance."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = each.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"tidemill.shim.fast_files" in words and os.fsencode(stage.directory(ref).path) in words:
            found.append(int(each.parent.name))
    return found


def assert_nothing_is_left(stage: Any, ref: Any) -> None:
    assert servers_of(stage, ref) == []
    assert str(stage.directory(ref).path) not in Path("/proc/self/mounts").read_text()


@pytest.mark.parametrize("backend", ["bubblewrap", "unshare"])
def test_files_are_listed_with_their_sizes_and_without_a_request(make_stage: Any, remote: Any, backend: str) -> None:
    stage = make_stage(backend)
    objects = [remote.put(f"d{number % 7}/{number:03}", bytes(number * 1000)) for number in range(60)]
    script = BASE + (
        "files = [path for path in data.rglob('*') if path.is_file()]\n"
        "print(len(files), all(path.stat().st_size == int(path.name) * 1000 for path in files))\n"
        "print(sorted(os.listdir(data)), os.access(data / 'd1/001', os.W_OK), os.path.exists(data / 'none'))\n"
        "try: (data / 'new').write_text('x')\n"
        "except OSError as error: print(error.strerror)\n"
        "found = os.statvfs(data)\n"
        "print(found.f_blocks * found.f_frsize, found.f_bavail, found.f_files, found.f_namemax)"
    )
    ref, ended = stage.run(script, channels=(channel(*objects),), remotes=remote.remotes)
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    size_bytes = -(-sum(each.size_bytes for each in objects) // 512) * 512
    assert stage.lines(ref).pop() == f"{size_bytes} 0 {60 + 7 + 1} 255"
    names = [f"d{number}" for number in range(7)]
    assert stage.lines(ref)[-4:-1] == ["60 True", f"{names} False False", "Read-only file system"]
    assert gets(remote) == []
    assert_nothing_is_left(stage, ref)


def test_a_copy_of_the_channel_can_be_changed(stage: Any, remote: Any) -> None:
    script = BASE + (
        "import shutil\n"
        "copy = Path(shutil.copytree(data, '/tmp/copy'))\n"
        "(copy / 'd/a').write_text('changed'); (copy / 'd/new').write_text('new')\n"
        "shutil.rmtree(copy); print(copy.exists())"
    )
    ref, ended = stage.run(script, channels=(channel(remote.put("d/a", b"a")),), remotes=remote.remotes)
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    assert stage.lines(ref)[-1] == "False"


def test_only_what_is_read_is_fetched(stage: Any, remote: Any) -> None:
    content = os.urandom(50 * MIB)
    big = remote.put("big", content)
    script = BASE + (
        "with open(data / 'big', 'rb', buffering=0) as file:\n"
        "    head = file.read(100)\n"
        "    file.seek(30 * 2**20 + 5); middle = file.read(50)\n"
        "print(head.hex(), middle.hex())"
    )
    ref, ended = stage.run(script, channels=(channel(big, remote.put("other", b"x")),), remotes=remote.remotes)
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    at = 30 * MIB + 5
    assert stage.lines(ref)[-1] == f"{content[:100].hex()} {content[at : at + 50].hex()}"
    assert ranges(remote) == [f"0-{MIB - 1}", f"{30 * MIB}-{31 * MIB - 1}"]
    assert all(f"If-Match: {big.etag}" in request for request in remote.wire.requests)


def test_whole_files_are_equal_and_each_byte_is_fetched_once(stage: Any, remote: Any) -> None:
    contents = {"a": os.urandom(40 * MIB + 123), "b": os.urandom(MIB), "c/d": b"short", "empty": b""}
    objects = [remote.put(name, data) for name, data in contents.items()]
    script = BASE + (
        "sums = {name: digest(name) for name in ('a', 'b', 'c/d', 'empty')}\n"
        "os.posix_fadvise(os.open(data / 'a', os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)\n"
        "print(json.dumps(sums), digest('a') == sums['a'])"
    )
    ref, ended = stage.run(script, channels=(channel(*objects),), remotes=remote.remotes)
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    sums = {name: hashlib.md5(data).hexdigest() for name, data in contents.items()}
    assert stage.lines(ref)[-1] == f"{json.dumps(sums)} True"
    bounds = [list(map(int, each.split("-"))) for each in ranges(remote) if each.split("-")[1]]
    starts = [each.split("-")[0] for each in ranges(remote)]
    assert len(starts) == len(set(starts))
    assert len(bounds) >= 4


def test_several_processes_and_threads_read_at_once(stage: Any, remote: Any) -> None:
    objects = [remote.put(str(number), os.urandom(5 * MIB)) for number in range(4)]
    script = BASE + (
        "children = [os.fork() for _ in range(1)]\n"
        "found = []\n"
        "def read(number):\n"
        "    found.append((number, digest(str(number % 4))))\n"
        "threads = [threading.Thread(target=read, args=(number,)) for number in range(12)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
        "assert len(found) == 12\n"
        "same = [len({digest for each, digest in found if each % 4 == part}) for part in range(4)]\n"
        "if children[0]:\n"
        "    _, status = os.waitpid(children[0], 0)\n"
        "    print(same, status)"
    )
    ref, ended = stage.run(script, channels=(channel(*objects),), remotes=remote.remotes)
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    assert stage.lines(ref)[-1] == "[1, 1, 1, 1] 0"


def test_files_are_whole_although_connections_break(stage: Any, remote: Any) -> None:
    remote.wire.cut_after = 300_000
    content = os.urandom(2_000_000)
    ref, ended = stage.run(
        BASE + "print(digest('a'))", channels=(channel(remote.put("a", content)),), remotes=remote.remotes
    )
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    assert stage.lines(ref)[-1] == hashlib.md5(content).hexdigest()


def test_objects_of_both_stores_are_in_one_channel(stage: Any, remote: Any) -> None:
    near = stage.stored(b"near", name="near")
    script = BASE + "print((data / 'near').read_bytes(), (data / 'far').read_bytes())"
    ref, ended = stage.run(script, channels=(channel(near, remote.put("far", b"far")),), remotes=remote.remotes)
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    assert stage.lines(ref)[-1] == "b'near' b'far'"


READ_BOTH = BASE + (
    "print(len((data / 'a').read_bytes()), flush=True)\n"
    "try:\n"
    "    (data / 'b').read_bytes()\n"
    "except OSError as error:\n"
    "    print('ERROR', error.errno, flush=True)\n"
    "    raise"
)


def test_a_replaced_object_is_an_error_and_the_reason_is_in_the_log(stage: Any, remote: Any) -> None:
    made = channel(remote.put("a", b"first"), remote.put("b", b"second"))
    remote.put("b", b"SECOND")
    ref, ended = stage.run(READ_BOTH, channels=(made,), remotes=remote.remotes)
    assert ended.outcome is InstanceOutcome.FAILED
    reason = f"channel 'train': s3://{remote.bucket}/b cannot be read from {remote.wire.url}: HTTP 412"
    assert ended.failure.startswith(f"ClientError: {reason}"), ended
    assert "The script then failed: AlgorithmError: ExecuteUserScriptError" in ended.failure
    lines = stage.lines(ref)
    assert {"5", "ERROR 5"} < set(lines)
    assert [line for line in lines if line.startswith(f"tidemill: {reason}")]
    assert_nothing_is_left(stage, ref)


def test_an_object_that_may_not_be_read_is_an_error(stage: Any, remote: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = channel(remote.put("a", b"first"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    ref, ended = stage.run(BASE + "digest('a')", channels=(made,), remotes=remote.remotes)
    assert ended.outcome is InstanceOutcome.FAILED
    assert (
        f"s3://{remote.bucket}/a cannot be read from {remote.wire.url}: HTTP 403 SignatureDoesNotMatch" in ended.failure
    )
    assert_nothing_is_left(stage, ref)


def test_a_store_that_is_away_is_an_error(stage: Any, remote: Any) -> None:
    made = channel(remote.put("a", b"first"))
    remote.wire.close()
    _, ended = stage.run(BASE + "digest('a')", channels=(made,), remotes=remote.remotes)
    assert ended.outcome is InstanceOutcome.FAILED
    assert f"s3://{remote.bucket}/a cannot be read from {remote.wire.url}: Connection refused" in ended.failure


def test_a_script_that_handles_the_error_completes(stage: Any, remote: Any) -> None:
    made = channel(remote.put("a", b"first"))
    remote.put("a", b"SECOND")
    script = BASE + "try: digest('a')\nexcept OSError as error: print('HANDLED', error.errno)"
    ref, ended = stage.run(script, channels=(made,), remotes=remote.remotes)
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    assert "HANDLED 5" in stage.lines(ref)


def test_an_object_that_could_be_read_later_is_not_the_reason_of_another_error(stage: Any, remote: Any) -> None:
    made = channel(remote.put("a", b"first"))
    remote.put("a", b"SECOND")
    script = BASE + (
        "while True:\n"
        "    try: digest('a'); break\n"
        "    except OSError: print('ERROR', flush=True); time.sleep(0.1)\n"
        "1 / 0"
    )
    ref = stage.start(script, channels=(made,), remotes=remote.remotes)
    stage.wait_for_line(ref, "ERROR")
    remote.put("a", b"first")
    ended = stage.ended(ref)
    assert ended.failure.startswith("AlgorithmError: ExecuteUserScriptError"), ended
    assert f"tidemill: channel 'train': s3://{remote.bucket}/a can be read again" in stage.lines(ref)


def test_a_job_ends_with_an_error_if_the_process_of_its_files_is_killed(stage: Any, remote: Any) -> None:
    made = channel(remote.put("a", b"first"))
    script = BASE + (
        "print('ready', flush=True)\n"
        "while True:\n"
        "    os.listdir(data)\n"
        "    (data / 'a').stat()\n"
        "    open(data / 'a', 'rb').close()\n"
        "    time.sleep(0.05)\n"
    )
    ref = stage.start(script, channels=(made,), remotes=remote.remotes)
    stage.wait_for_line(ref, "ready")
    (server,) = servers_of(stage, ref)
    os.kill(server, signal.SIGKILL)
    ended = stage.ended(ref)
    assert ended.outcome is InstanceOutcome.FAILED
    text = "channel 'train': the process that reads it from the remote S3 has ended with signal 9"
    assert ended.failure.startswith(f"InternalServerError: {text}. The script then failed: "), ended
    assert f"tidemill: {text}" in stage.lines(ref)
    assert_nothing_is_left(stage, ref)


def test_a_job_is_stopped_while_it_reads_from_a_store_that_is_silent(stage: Any, remote: Any) -> None:
    made = channel(remote.put("a", bytes(4 * MIB)))
    remote.wire.silent_after = 100_000
    ref = stage.start(BASE + "digest('a')", channels=(made,), remotes=remote.remotes, grace_s=1.0)
    stage.wait(ref, lambda: bool(remote.wire.requests))
    began_s = time.monotonic()
    stage.executor.stop(ref, reason=StopReason.STOPPED)
    assert stage.ended(ref).outcome is InstanceOutcome.STOPPED
    assert time.monotonic() - began_s < transfers._SILENCE_TIMEOUT_S, "a stop does not wait for the store"
    assert_nothing_is_left(stage, ref)


def test_cached_blocks_can_be_read_while_many_reads_wait_for_a_silent_store(stage: Any, remote: Any) -> None:
    remote.wire.silent_after = 100_000
    objects = [remote.put(f"silent{number}", bytes(200_000)) for number in range(40)]
    script = BASE + (
        "digest('cached')\n"
        "names = [f'silent{number}' for number in range(40)]\n"
        "for name in names: threading.Thread(target=digest, args=(name,), daemon=True).start()\n"
        "waits = lambda task: 'State:\\tD' in (task / 'status').read_text()\n"
        "while sum(map(waits, Path('/proc/self/task').iterdir())) < 40: time.sleep(0.02)\n"
        "with open(data / 'cached', 'rb') as file:\n"
        "    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)\n"
        "    print(file.read(), flush=True)\n"
        "os._exit(0)"
    )
    made = channel(remote.put("cached", b"here"), *objects)
    ref = stage.start(script, channels=(made,), remotes=remote.remotes)
    stage.wait_for_line(ref, "b'here'")
    assert stage.ended(ref).outcome is InstanceOutcome.COMPLETED
    assert_nothing_is_left(stage, ref)


def test_nothing_is_left_if_the_shim_is_killed(stage: Any, remote: Any) -> None:
    script = BASE + "print('ready', flush=True)\ntime.sleep(600)"
    ref = stage.start(script, channels=(channel(remote.put("a", b"a")),), remotes=remote.remotes)
    stage.wait_for_line(ref, "ready")
    assert len(servers_of(stage, ref)) == 1
    os.kill(stage.directory(ref).read_run().pid, signal.SIGKILL)
    stage.wait(ref, lambda: servers_of(stage, ref) == [])
    assert_nothing_is_left(stage, ref)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("../../x",), "ClientError: object key leaves the channel"),
        (("a", "a/b"), "clashes with another object below /opt/ml/input/data/train"),
        (("a/b", "a"), "clashes with another object below /opt/ml/input/data/train"),
    ],
)
def test_a_key_that_is_no_path_of_its_own_fails_the_job(
    stage: Any, remote: Any, names: tuple[str, ...], reason: str
) -> None:
    objects = [
        RemoteObject(uri=f"s3://{remote.bucket}/{name}", name=name, size_bytes=1, etag='"x"', remote=remote.bucket)
        for name in names
    ]
    _, ended = stage.run("", channels=(channel(*objects),), remotes=remote.remotes)
    assert ended.outcome is InstanceOutcome.FAILED
    assert reason in ended.failure


def test_the_refusal_names_what_is_missing(make_stage: Any, remote: Any) -> None:
    stage = make_stage("plain")
    _, ended = stage.run("", channels=(channel(remote.put("a", b"a")),), remotes=remote.remotes)
    assert ended.failure == (
        "ClientError: channel 'train': input mode FastFile cannot read a remote S3 on this machine: isolation plain has"
        " no mounts of its own; set isolation to mount. Or use File, which downloads the objects before the script"
        " starts"
    )


def test_no_secret_is_written(stage: Any, remote: Any) -> None:
    script = BASE + "print(sorted(name for name in os.environ if name.startswith('AWS_'))); digest('a')"
    ref, ended = stage.run(script, channels=(channel(remote.put("a", b"far")),), remotes=remote.remotes)
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    assert stage.lines(ref)[-1] == "[]"
    secrets = [os.environ["AWS_SECRET_ACCESS_KEY"].encode(), b"X-Amz-Signature", b"Signature="]
    for path in stage.state_dir.rglob("*"):
        if path.is_file():
            assert not any(secret in path.read_bytes() for secret in secrets), path


def test_objects_of_the_service_alone_are_downloaded_on_another_machine(stage: Any, remote: Any) -> None:
    own = replace(remote.put("a", b"own"), remote=SERVICE)
    keys = {name: os.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    remotes = {SERVICE: remote.remotes[remote.bucket]}
    ref, ended = stage.run(
        BASE + "(data / 'a').write_text('changed')", channels=(channel(own),), remotes=remotes, variables=keys
    )
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    assert len(gets(remote)) == 1


def test_objects_of_the_service_and_of_a_remote_store_are_in_one_channel_on_another_machine(
    stage: Any, remote: Any
) -> None:
    own = replace(remote.put("a", b"own"), remote=SERVICE)
    keys = {name: os.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    remotes = {SERVICE: remote.remotes[remote.bucket], **remote.remotes}
    script = BASE + "print((data / 'a').read_bytes(), (data / 'b').read_bytes())"
    ref, ended = stage.run(script, channels=(channel(own, remote.put("b", b"far")),), remotes=remotes, variables=keys)
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    assert stage.lines(ref)[-1] == "b'own' b'far'"


def test_several_channels_of_a_script_that_has_packages_installed_first(stage: Any, remote: Any) -> None:
    first = channel(remote.put("a", b"first"))
    second = replace(channel(remote.put("b", b"second")), name="eval")
    script = BASE + "print((data / 'a').read_bytes(), (data / '../eval/b').read_bytes(), flush=True)\n"
    config = {"hyperparameters": {"script": script, "requirements": "one==1"}}
    ref, ended = stage.run(config=config, channels=(first, second), remotes=remote.remotes)
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    assert "tidemill: installing packages of /opt/ml/code/requirements.txt" in stage.lines(ref)
    assert stage.lines(ref)[-1] == "b'first' b'second'"
    assert_nothing_is_left(stage, ref)


def test_a_process_that_cannot_be_started_leaves_no_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidemill.shim.fast_files import servers

    def fail(*arguments: Any, **options: Any) -> None:
        raise OSError("no process")

    monkeypatch.setattr(servers.subprocess, "Popen", fail)
    task = SimpleNamespace(fast_files=("train",))
    files = servers.FastFiles(SimpleNamespace(directory=SimpleNamespace(path=tmp_path), task=task))  # type: ignore[arg-type]
    before = sorted(Path("/proc/self/fd").iterdir())
    with pytest.raises(OSError, match="no process"), files.running():
        pass
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_the_process_of_the_files_reaches_the_store_from_a_private_network(make_stage: Any, remote: Any) -> None:
    stage = make_stage("auto")
    if stage.executor.no_network:
        pytest.skip(f"networks: {stage.executor.no_network}")
    stage = make_stage("full")
    script = BASE + "print((data / 'a').read_bytes())"
    made = channel(remote.put("a", b"far"))
    ref, ended = stage.run(script, channels=(made,), remotes=remote.remotes, hosts=("algo-1",))
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    assert stage.lines(ref)[-1] == "b'far'"
    assert any("isolation=full" in line for line in stage.lines(ref))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("FUSE_DEVICE", Path("/dev/none"), "/dev/none is missing; run `modprobe fuse` as root"),
        ("_LIBRARIES", ("libnone.so.1",), "libfuse3 is missing; run `apt install fuse3` as root"),
    ],
)
def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: Any, reason: str) -> None:
    monkeypatch.setattr(f"tidemill.sandbox.fuse.{name}", value)
    assert fuse_fault(detect("auto").sandbox).startswith(reason)


def test_a_device_that_cannot_be_opened_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "fuse"
    with socket.socket(socket.AF_UNIX) as sock:  # open(2) fails as for a device without its module
        sock.bind(str(path))
    monkeypatch.setattr("tidemill.sandbox.fuse.FUSE_DEVICE", path)
    reason = f"{path} cannot be opened: No such device or address; run `modprobe fuse` as root"
    assert fuse_fault(detect("auto").sandbox) == reason


def test_the_cache_keeps_the_blocks_that_were_used_last(tmp_path: Path) -> None:
    from tidemill.shim.fast_files.cache import BlockCache

    cache = BlockCache(tmp_path, 3)
    for number in range(3):
        cache.write((0, number), bytes([number]) * 10)
    assert cache.read((0, 0), 2, 3) == b"\0\0\0"
    cache.write((1, 0), b"new")
    assert [(0, number) in cache for number in range(3)] == [True, False, True]
    assert (cache.read((1, 0), 0, 3), cache.read((0, 1), 0, 1)) == (b"new", None)
    assert list(tmp_path.iterdir()) == []
    cache.close()


def test_a_fault_does_not_keep_its_connection_in_memory(tmp_path: Path, remote: Any) -> None:
    from tidemill.instance.remote_stores import RemoteStores
    from tidemill.instance.transfers import RemoteBody, RemoteFault, Transfers
    from tidemill.shim.fast_files.cache import BlockCache
    from tidemill.shim.fast_files.reader import BlockReader, FilePosition

    gone = replace(remote.put("a", b"a"), etag='"other"')
    with Transfers(RemoteStores(remote.remotes)) as transfers, closing(BlockCache(tmp_path, 1)) as cache:
        reader = BlockReader(transfers, cache)
        with pytest.raises(RemoteFault, match="HTTP 412"):
            reader.read(0, gone, FilePosition(), 0, 1, check=lambda: None)
        assert reader.is_unreadable(0)
        gc.collect()
        assert not [each for each in gc.get_objects() if isinstance(each, RemoteBody)]


def test_the_caches_of_a_job_leave_half_of_the_disk_free(tmp_path: Path) -> None:
    from tidemill.shim.fast_files.cache import BLOCK_BYTES, capacity_of

    free, limit = shutil.disk_usage(tmp_path).free, 64 << 30
    caches = 1 + free // (32 << 30)  # so that 64 GiB for each would be too much
    blocks = capacity_of(tmp_path, free, objects=1, caches=caches, max_bytes=limit)
    assert 0.4 * free < blocks * BLOCK_BYTES * caches < 0.6 * free
    assert capacity_of(tmp_path, 100 * MIB, objects=3, caches=1, max_bytes=limit) == 103


def test_the_cache_of_a_channel_has_at_most_the_size_of_the_setting(make_stage: Any, remote: Any) -> None:
    stage = make_stage("auto", fast_file_cache_max_bytes=64 * MIB)
    script = BASE + ("print(digest('a'), flush=True)\nwhile not Path('/opt/ml/output/go').exists(): time.sleep(0.02)\n")
    content = bytes(80 * MIB)
    ref = stage.start(script, channels=(channel(remote.put("a", content)),), remotes=remote.remotes)
    stage.wait_for_line(ref, hashlib.md5(content).hexdigest())
    (server,) = servers_of(stage, ref)
    files = [each for each in Path(f"/proc/{server}/fd").iterdir() if str(each.readlink()).endswith(" (deleted)")]
    assert [each.stat().st_size for each in files] == [64 * MIB]
    (stage.directory(ref).ml / "output/go").touch()
    assert stage.ended(ref).outcome is InstanceOutcome.COMPLETED


def test_a_block_that_is_waited_for_comes_before_blocks_that_are_read_ahead(tmp_path: Path, remote: Any) -> None:
    from tidemill.instance.remote_stores import RemoteStores
    from tidemill.instance.transfers import Transfers
    from tidemill.shim.fast_files.cache import BlockCache
    from tidemill.shim.fast_files.reader import BlockReader, FilePosition

    arrived: queue.Queue[str] = queue.Queue()
    gate = threading.Semaphore(0)

    class Gate(RemoteStores):
        """Holds each request until the test lets it pass."""

        def link(self, entry: RemoteObject) -> str:
            arrived.put(entry.name)
            assert gate.acquire(timeout=60)
            return super().link(entry)

    big, large = remote.put("big", bytes(21 * MIB)), remote.put("large", bytes(21 * MIB))
    small = [remote.put(f"small{number}", b"x") for number in range(9)]

    def middle() -> FilePosition:
        """Return the state of a file that was read in order; the next read requests blocks 5 to 20 in two requests."""
        position = FilePosition()
        position.block, position.fetched_to, position.ahead = 4, 5, 8
        return position

    with (
        Transfers(Gate(remote.remotes)) as transfers,
        closing(BlockCache(tmp_path, 64)) as cache,
        ThreadPoolExecutor(16) as threads,
    ):
        reader = BlockReader(transfers, cache)
        reads = []

        def read(number: int, entry: RemoteObject, position: FilePosition, block: int) -> None:
            waits = threading.Event()
            reads.append(threads.submit(reader.read, number, entry, position, block * MIB, 1, check=waits.set))
            assert waits.wait(60)

        for number in range(8):  # occupy all connections
            read(number, small[number], FilePosition(), 0)
        read(10, big, middle(), 5)
        read(11, large, middle(), 5)
        read(8, small[8], FilePosition(), 0)
        read(11, large, FilePosition(), 20)
        names = []
        for _ in range(13):
            names.append(arrived.get(timeout=60))
            if len(names) >= 8:
                gate.release()
        gate.release(14)
        assert [len(each.result(60)) for each in reads] == [1] * 12
    assert names[8:] == ["big", "large", "small8", "large", "big"]


@pytest.mark.parametrize("is_awaited", [False, True])
def test_what_was_requested_ahead_for_a_closed_file_is_fetched_only_if_another_waits_for_it(
    tmp_path: Path, remote: Any, is_awaited: bool
) -> None:
    from tidemill.instance.remote_stores import RemoteStores
    from tidemill.instance.transfers import Transfers
    from tidemill.shim.fast_files.cache import BlockCache
    from tidemill.shim.fast_files.reader import BlockReader

    gate = threading.Event()

    class Gate(RemoteStores):
        """Holds each request until the test lets all of them pass."""

        def link(self, entry: RemoteObject) -> str:
            assert gate.wait(60)
            return super().link(entry)

    big = remote.put("big", bytes(21 * MIB))
    small = [remote.put(f"small{number}", b"x") for number in range(8)]
    with (
        Transfers(Gate(remote.remotes)) as transfers,
        closing(BlockCache(tmp_path, 1000)) as cache,
        ThreadPoolExecutor(16) as threads,
    ):
        reader = BlockReader(transfers, cache)

        def start(number: int, entry: RemoteObject, position: Any, block: int) -> Any:
            waits = threading.Event()
            read = threads.submit(reader.read, number, entry, position, block * MIB, 1, check=waits.set)
            assert waits.wait(60)
            return read

        reads = [start(number, small[number], reader.open(), 0) for number in range(8)]  # occupy all connections
        position = reader.open()
        position.block, position.fetched_to, position.ahead = 4, 5, 8
        reads.append(start(9, big, position, 5))  # requests blocks 5 to 20, in two requests
        if is_awaited:
            reads.append(start(9, big, reader.open(), 14))
        reader.close(position)
        gate.set()
        for read in reads:
            assert len(read.result(60)) == 1
        reader._pool.shutdown()  # waits for all that was requested
        assert len([line for line in gets(remote) if "/big" in line]) == 1 + is_awaited


def test_blocks_are_not_replaced_in_a_small_cache_before_they_are_read(tmp_path: Path, remote: Any) -> None:
    from tidemill.instance.remote_stores import RemoteStores
    from tidemill.instance.transfers import Transfers
    from tidemill.shim.fast_files.cache import BlockCache
    from tidemill.shim.fast_files.reader import BlockReader

    objects = [remote.put(str(number), bytes(20 * MIB)) for number in range(3)]
    with Transfers(RemoteStores(remote.remotes)) as transfers, closing(BlockCache(tmp_path, 12)) as cache:
        reader = BlockReader(transfers, cache)
        positions = [reader.open() for _ in objects]
        for block in range(20):
            for number, entry in enumerate(objects):
                reader.read(number, entry, positions[number], block * MIB, MIB, check=lambda: None)
    bounds = [each.split("-") for each in ranges(remote)]
    fetched = sum((int(end) if end else 20 * MIB - 1) - int(start) + 1 for start, end in bounds)
    assert fetched == 60 * MIB
