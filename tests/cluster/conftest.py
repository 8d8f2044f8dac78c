"""A service and a Ray cluster of four machines, for all tests of this directory."""

import contextlib
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

sys.path.insert(0, str(Path(__file__).parent))
from nodes import LEASE_S, RAY_PORT, Node, environment, ray_start

from namespaces import HEAD, make_bridge
from polling import poll
from tidemill.testing import Service


@pytest.fixture(scope="session")
def cluster() -> Iterator[tuple[Service, list[Node]]]:
    """Yield the service, on the head of the cluster, and the four machines on which jobs run."""
    if len(socket.if_nameindex()) > 1:
        pytest.exit("these tests need a network of their own: run them by `make matrix-ray`", returncode=2)
    make_bridge()
    # A short path: it contains sockets, whose paths are limited.
    with (
        tempfile.TemporaryDirectory(prefix="cluster-", ignore_cleanup_errors=True) as directory,
        contextlib.ExitStack() as stack,
    ):
        root = Path(directory)
        state = root / "state"
        state.mkdir(mode=0o700)
        (root / "head").mkdir()
        log = stack.enter_context((root / "head/ray.log").open("ab"))
        head = subprocess.Popen(
            ray_start(
                "--head", f"--port={RAY_PORT}", "--include-dashboard=false", address=HEAD, root=root / "head", cpus=0
            ),
            env=environment(root / "head"),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        nodes = []
        try:
            _await_ray(root / "head/ray.log", head, "--block")
            for number in range(1, 5):
                nodes.append(Node(number, root, hidden=state))
                nodes[-1].join()
            _await_machines(4)
            with Service(state_dir=state, settings=_settings()) as service:
                yield service, nodes
        finally:
            for node in nodes:
                node.kill()
            head.terminate()
            head.wait(30)


def _settings() -> dict[str, object]:
    return {
        "executor": "ray",
        "ray_address": f"{HEAD}:{RAY_PORT}",
        "host": HEAD,
        "port": 8780,
        "allow_plain_http": True,
        "cluster_servers": True,
        "lease_s": LEASE_S,
        "stop_grace_s": 5,
        "ray_instance_types": {
            "ml.p3.*": {"cpus": 2, "gpus": 1, "labels": {"disk": "fast"}},
            "ml.g4dn.*": {"gpus": 9},
            "ml.c5.*": {"cpus": 2},
        },
    }


def _await_ray(log: Path, process: subprocess.Popen[bytes], words: str) -> None:
    def logged() -> bool:
        assert process.poll() is None, log.read_text()
        return words in log.read_text()

    poll(logged, log.read_text)


def _await_machines(count: int) -> None:
    ray.init(address=f"{HEAD}:{RAY_PORT}", log_to_driver=False, configure_logging=False)
    try:
        poll(lambda: ray.cluster_resources().get("CPU", 0) >= 2 * count, ray.nodes)
    finally:
        ray.shutdown()
