"""Measure how long requests wait until a standby service leads: after kill -9, a hang and a normal exit.

Run it as ``python benchmarks/takeover.py [--rounds N]``. Two services share a PostgreSQL on this machine, and a client
sends requests to the standby. The result is the longest time between two answers.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tidemill.testing import Service

sys.path.insert(0, str(Path(__file__).parents[1] / "packages/tidemill/tests/doubles"))
from postgresql_server import PostgresqlServer, binaries

ENDS = {"kill -9": signal.SIGKILL, "hang (SIGSTOP)": signal.SIGSTOP, "orderly end": signal.SIGTERM}
PAUSE_S = 0.02


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    if binaries() is None:
        raise SystemExit("PostgreSQL is not installed: apt install postgresql")
    database = PostgresqlServer()
    try:
        database.start()
        for what, number in ENDS.items():
            taken_s = [takeover_s(database.empty_database(), number) for _ in range(rounds)]
            shown = ", ".join(f"{seconds:.1f}" for seconds in taken_s)
            load = os.getloadavg()[0]
            print(f"{what}: median {statistics.median(taken_s):.1f} s ({shown}), load {load:.0f}", flush=True)
    finally:
        database.close()


def takeover_s(database_url: str, number: signal.Signals) -> float:
    """Return the longest time between two answers, in seconds, while the other service takes over."""
    with tempfile.TemporaryDirectory(prefix="tidemill-") as root:
        settings = {"database_url": database_url, "standby": True}
        leader, follower = (Service(state_dir=Path(root) / "s", settings=settings) for _ in range(2))
        with leader, follower:
            client = client_of(follower)
            client.list_training_jobs()
            time.sleep(2)  # until the standby has read the leader's row more than once
            assert leader.pid is not None
            os.kill(leader.pid, number)
            answered_s, longest_s = time.monotonic(), 0.0
            # Both services write to the same log.
            while follower.log.count("service.started") < 2 or not answers(client):
                if answers(client):
                    longest_s, answered_s = max(longest_s, time.monotonic() - answered_s), time.monotonic()
                time.sleep(PAUSE_S)
            leader.kill()
            return max(longest_s, time.monotonic() - answered_s)


def client_of(service: Service) -> Any:
    """Return a client of exactly this service, without retries."""
    keys = json.loads((service.state_dir / "keys.json").read_text())
    session = boto3.Session(keys["access_key_id"], keys["secret_access_key"], region_name="us-west-2")
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=60)
    return session.client("sagemaker", endpoint_url=service.url, config=config)


def answers(client: Any) -> bool:
    """Return whether the service answers a request."""
    try:
        client.list_training_jobs()
    except (BotoCoreError, ClientError):
        return False
    return True


if __name__ == "__main__":
    main()
