"""The S3 client inside TensorFlow before 2.6: directed to the service, and on 1.15 with separate temporary files."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tidemill_runtime._shared.native_build.compiling import CompileError, NativeSources, find_library
from tidemill_runtime.events import emit

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCES = NativeSources("temporary_files", Path(__file__).resolve().with_name("native"))
_PACKAGE_OF_1_15 = "tensorflow_core"
"""The package, absent in 2.4, of the versions whose client names temporary files by the time alone."""


def old_s3_client_variables(container: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the script for this client.

    Args:
        container: The container's variables. Its own ``S3_ENDPOINT`` and ``S3_USE_HTTPS`` stay. The libraries of its
            ``LD_PRELOAD`` are loaded after the one that separates temporary files.
    """
    variables = {}
    service = urlsplit(container.get("AWS_ENDPOINT_URL", ""))
    if service.netloc:
        direction = {"S3_ENDPOINT": service.netloc, "S3_USE_HTTPS": "1" if service.scheme == "https" else "0"}
        variables.update((name, container.get(name, value)) for name, value in direction.items())
    if importlib.util.find_spec(_PACKAGE_OF_1_15) is not None:
        variables.update(_preload(container))
    return variables


def _preload(container: Mapping[str, str]) -> dict[str, str]:
    try:
        library, _ = find_library(SOURCES)
    except (CompileError, OSError) as error:
        consequence = "files that TensorFlow writes to s3:// at the same time may be mixed up"
        emit("s3_client.unrepaired", consequence=consequence, reason=str(error))
        return {}
    return {"LD_PRELOAD": ":".join(filter(None, (str(library), container.get("LD_PRELOAD"))))}
