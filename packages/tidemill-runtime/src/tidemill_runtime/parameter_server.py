"""``python -m tidemill_runtime.parameter_server``: the parameter server of one instance, in the script's environment.

This is the only module of the runtime that imports TensorFlow; it runs in a separate process.
"""

from __future__ import annotations

import importlib
import json
import os
import sys


def serve() -> None:
    """Serve as the task that ``TF_CONFIG`` names, on the CPU, until the process is killed."""
    config = json.loads(os.environ["TF_CONFIG"])
    tensorflow = importlib.import_module("tensorflow")
    task = config["task"]
    options = tensorflow.compat.v1.ConfigProto(device_count={"GPU": 0})
    server = tensorflow.distribute.Server(
        config["cluster"], job_name=task["type"], task_index=task["index"], config=options
    )
    server.join()


if __name__ == "__main__":
    del sys.path[0]  # the working directory: modules of the script must not replace those of the server
    serve()
