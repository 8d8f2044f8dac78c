"""A service of an ordinary user, and a Slurm cluster of four nodes, for all tests of this directory."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from slurm_tools import idle_nodes

from namespaces import HEAD
from polling import poll
from tidemill.testing import Service

LEASE_S = 60.0


@pytest.fixture(scope="session")
def cluster() -> Iterator[Service]:
    """Yield the service, on the machine of the controller."""
    if "SLURM_TEST_CONTROL" not in os.environ:
        pytest.exit("these tests need a Slurm cluster of their own: run them by `make matrix-slurm`", returncode=2)
    poll(lambda: len(idle_nodes()) == 4, idle_nodes)
    state = Path.home() / "state"
    state.mkdir(mode=0o700)
    with Service(state_dir=state, settings=_settings()) as service:
        yield service


def _settings() -> dict[str, object]:
    return {
        "executor": "slurm",
        "host": HEAD,
        "port": 8780,
        "allow_plain_http": True,
        "cluster_servers": True,
        "lease_s": LEASE_S,
        "stop_grace_s": 5,
        "slurm_instance_types": {
            "ml.p3.*": {"gres": "gpu:1", "constraint": "fast", "time_limit": "1:00:00"},
            "ml.c5.*": {"exclusive": True},
            "ml.g4dn.*": {"partition": "closed"},
            "ml.p4d.*": {"account": "physics", "partition": "nowhere"},
        },
    }
