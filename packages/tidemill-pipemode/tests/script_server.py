"""A program that imports TensorFlow once and forks a process for each script.

    python script_server.py SOCKET

A caller connects, and sends the script and its arguments as JSON with the descriptors of its standard output and error.
It receives the process id, and at the end the wait status. The script runs in the main thread of an ordinary
interpreter and exits in the ordinary way.
"""

import json
import os
import signal
import socket
import sys
from typing import Any

import tensorflow as tf

import sagemaker_tensorflow.dataset
from sagemaker_tensorflow import native_library


def serve(path: str) -> Any:
    """Fork for each caller. Returns only in the forked processes, with the caller's request."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    print("ready", flush=True)
    while True:
        caller, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return run(caller)
        caller.close()


def run(caller: socket.socket) -> Any:
    """Fork once more: one process runs the script, the other waits for it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, descriptors, _, _ = socket.recv_fds(caller, 1 << 20, 2)
    pid = os.fork()
    if pid == 0:
        caller.close()
        for target, descriptor in enumerate(descriptors, start=1):
            os.dup2(descriptor, target)
            os.close(descriptor)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return json.loads(request)
    for descriptor in descriptors:
        os.close(descriptor)
    os.close(1)
    os.close(2)
    caller.sendall(f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    caller.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    asked = serve(sys.argv[1])
    assert tf.__version__
    if asked["reader"] == "python":
        absent = native_library.NativeLibrary(None, None, "switched off by the test")
        sagemaker_tensorflow.dataset.load_native_reader = lambda: absent
    sys.argv = ["script", *asked["arguments"]]
    exec(compile(asked["script"], "script", "exec"), {"__name__": "__main__"})
