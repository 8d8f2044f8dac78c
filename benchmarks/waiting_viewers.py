"""Measure what viewers that wait for changes cost the service while nothing changes: CPU time per second and viewer.

    .venv/bin/python benchmarks/waiting_viewers.py --viewers 50 --seconds 65

Each viewer is a client that waits for changes of all jobs and endpoints, and asks again when a wait has ended, as a
window of the page does. The CPU time of the service without viewers, over the same time, is subtracted.
"""

import argparse
import threading
import time

import psutil

from tidemill.server.client import own_client
from tidemill.testing import Service

_INTERESTS = [{"Kind": kind} for kind in ("training-job", "processing-job", "transform-job", "endpoint")]


def main() -> None:
    """Print the cost of a viewer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=65.0)
    asked = parser.parse_args()
    with Service() as service:
        process = psutil.Process(service.pid)
        time.sleep(5)  # the start loads models in the background
        alone_s = _cpu_s(process, asked.seconds)
        ended = threading.Event()
        viewers = [threading.Thread(target=_view, args=(service, ended), daemon=True) for _ in range(asked.viewers)]
        for viewer in viewers:
            viewer.start()
        time.sleep(5)
        waiting_s = _cpu_s(process, asked.seconds)
        ended.set()
    each_ms = (waiting_s - alone_s) / asked.seconds / asked.viewers * 1000
    print(f"service without viewers: {alone_s / asked.seconds * 1000:.2f} ms of CPU a second")
    print(f"with {asked.viewers} viewers: {waiting_s / asked.seconds * 1000:.2f} ms of CPU a second")
    print(f"{each_ms:.3f} ms of CPU a second and viewer (limit: 1 ms)")


def _cpu_s(process: psutil.Process, seconds: float) -> float:
    before = process.cpu_times()
    time.sleep(seconds)
    after = process.cpu_times()
    return float(after.user + after.system - before.user - before.system)


def _view(service: Service, ended: threading.Event) -> None:
    client = own_client(service.boto3_session(), service.url)
    token = client.wait_for_changes(Interests=_INTERESTS)["Token"]
    while not ended.is_set():
        token = client.wait_for_changes(Interests=_INTERESTS, Token=token)["Token"]


if __name__ == "__main__":
    main()
