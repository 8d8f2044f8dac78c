"""Imports TensorFlow once and forks the ranks of tests from there: to be run by `rank_processes`, not imported.

    python rank_server.py SOCKET

For each rank a caller connects to SOCKET and sends as JSON the variables of its environment and its cores, with three
descriptors: where the rank reads requests, where it writes answers, and where it prints. The caller is told the process
id at once, and the exit code when the rank ends. The server ends when its standard input does.
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
    """Fork for each caller. Returns only in ranks: what is left for them to do."""
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
    """Fork once more: one process is the rank, the other stays to tell of its end."""
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
    # Processes that start by themselves draw numbers of their own.
    random.seed()
    np.random.seed()
    with os.fdopen(requests, "rb") as stream, os.fdopen(answers, "wb") as back:
        ranks.serve(stream, back)
    # An ordinary end, but for taking the interpreter apart, which takes longer than all else of it.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])()
