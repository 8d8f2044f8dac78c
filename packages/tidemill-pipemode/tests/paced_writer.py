"""A program that writes given pieces into a FIFO, with pauses between them, and may then kill itself.

    python paced_writer.py FIFO OUTCOME < PLAN

PLAN is JSON: `pieces` in hexadecimal, and `killed`, whether it ends by SIGKILL after the last piece. OUTCOME is the
outcome file of the epoch, or empty for a writer without one.
"""

import array
import fcntl
import json
import os
import select
import signal
import sys
import termios
import time
from pathlib import Path


def wait_until_read(fd: int) -> bool:
    """Return whether the reader has read everything and is still connected."""
    unread = array.array("i", [0])
    poll = select.poll()
    poll.register(fd, 0)  # reports an end without readers
    while True:
        fcntl.ioctl(fd, termios.FIONREAD, unread)
        if unread[0] == 0:
            return True
        if poll.poll(0):
            return False
        time.sleep(0.0005)


def write_outcome(path: str, state: str, size_bytes: int) -> None:
    if path:
        beside = Path(path + ".new")
        beside.write_text(f"2 {state} {size_bytes} 1\n")
        beside.rename(path)


def main() -> None:
    fifo, outcome = sys.argv[1:]
    plan = json.load(sys.stdin)
    fd = os.open(fifo, os.O_WRONLY)
    written = 0
    try:
        for piece in map(bytes.fromhex, plan["pieces"]):
            left = memoryview(piece)
            while left:
                left = left[os.write(fd, left) :]
            written += len(piece)
            if not wait_until_read(fd):
                return
    except BrokenPipeError:
        return  # the reader has closed the FIFO: the next epoch has another writer
    if plan["killed"]:
        os.kill(os.getpid(), signal.SIGKILL)
    write_outcome(outcome, "ok", written)
    os.close(fd)


if __name__ == "__main__":
    main()
