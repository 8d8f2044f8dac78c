"""The job that benchmarks measure: a script that an estimator's `fit()` runs on this machine."""

import contextlib
import io
import time
from pathlib import Path
from typing import Any

from tidemill.sdk import Session, TensorFlow
from tidemill.testing import Service

__all__ = ["fit"]


def fit(service: Service, script: Path, inputs: Any = None, *, instances: int = 1) -> tuple[float, str]:
    """Run a job to its end. Return the time when `fit()` was called (seconds since the epoch), and what it printed.

    Args:
        service: Service that runs the job.
        script: The script.
        inputs: The argument of `fit()`. Default: no channels.
        instances: Number of instances. Default: 1.
    """
    estimator = TensorFlow(
        entry_point=str(script),
        role="SageMakerRole",
        instance_count=instances,
        instance_type="local",
        framework_version="2.21",
        py_version="py311",
        sagemaker_session=Session(boto_session=service.boto3_session()),
    )
    output = io.StringIO()
    begun = time.time()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        estimator.fit(inputs)
    return begun, output.getvalue()
