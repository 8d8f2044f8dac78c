"""Imports TensorFlow once, and forks the ranks of tests from that process. `rank_processes` runs this script.

    python rank_server.py SOCKET

For each rank a caller connects to SOCKET and sends, as JSON, its environment variables and cores, with three
descriptors: for requests, answers and output. The server answers with the process id immediately, and with the exit
code when the rank ends. The server ends when its standard input is closed.
"""

import atexit
import json
import os
import random
import select
import signal
import socket
import sys
from collections.abc import Callable

import numpy as np
import tensorflow as tf

import ranks
import smdistributed.modelparallel.tensorflow as smp

assert tf.__version__
assert smp.init, "what the library imports is there before the first rank is"


def serve(path: str) -> Callable[[], None]:
    """Fork for each caller. Returns only in the ranks, with the function for them to run."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    print("ready", flush=True)
    while sys.stdin not in select.select([sys.stdin, listener], [], [])[0]:
        caller, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return fork_rank(caller)
        caller.close()
    os._exit(0)


def fork_rank(caller: socket.socket) -> Callable[[], None]:
    """Fork again: one process is the rank, the other waits for it and reports its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, (requests, answers, output), _, _ = socket.recv_fds(caller, 1 << 20, 3)
    pid = os.fork()
    if pid == 0:
        caller.close()
        return lambda: be_rank(**json.loads(request), requests=requests, answers=answers, output=output)
    for descriptor in (0, 1, 2, requests, answers, output):
        os.close(descriptor)
    caller.sendall(f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    caller.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def be_rank(variables: dict[str, str], cores: list[int], requests: int, answers: int, output: int) -> None:
    os.environ.clear()
    os.environ.update(variables)
    os.sched_setaffinity(0, cores)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    # Separately started processes have different random states, unlike forked ones.
    random.seed()
    np.random.seed()
    with os.fdopen(requests, "rb") as stream, os.fdopen(answers, "wb") as back:
        ranks.serve(stream, back)
    # Skips the finalization of the interpreter, which takes longer than the rest of a normal exit.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])()
