"""The result of `import tensorflow_io` if that package is not installed: `s3://`, for which most scripts import it.

Executed as the module ``tensorflow_io``. TensorFlow's own `s3://` is registered when TensorFlow is imported, so nothing
is left to do; everything else that the package has is refused.
"""

import sys
from typing import Any

import tensorflow  # noqa: F401 - tensorflow_io imports it, too

__all__: list[str] = []

sys.stderr.write(
    "tidemill: tensorflow_io is not installed. s3:// paths work without it, so its import passes; nothing else of it"
    " is here. For the rest, name tensorflow-io in requirements.txt\n"
)


def __getattr__(name: str) -> Any:
    """Refuse what the package would have.

    Raises:
        AttributeError: Always.
    """
    raise AttributeError(
        f"tensorflow_io.{name} does not exist: tensorflow_io is not installed in this job, and only the s3:// paths for"
        " which it is often imported work without it. Name tensorflow-io in requirements.txt",
    )
