"""Numbers of threads and workers on a limited set of processors."""

import os
import subprocess
import sys

SCRIPT = """
import os
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
from tidemill_serving.options import read_options
options = read_options(["--model-dir", "m"], {"SAGEMAKER_TFS_ENABLE_BATCHING": "true"})
print(options.batching.threads, options.batching.max_enqueued_batches)
"""


def test_a_server_with_one_processor_has_threads_for_one() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SAGEMAKER_")}
    run = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["1", "1"]
