"""Run the server as the process that a command has started."""

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

from tidemill_serving.errors import StartFailed

if TYPE_CHECKING:
    from tidemill_serving.options import ServerOptions


def run_process(read: "Callable[[], ServerOptions]", environment: Mapping[str, str]) -> NoReturn:
    """Serve until a signal, and exit: with status 1 if the server cannot start, or does not answer every request.

    Args:
        read: Returns the options; may raise StartFailed.
        environment: Variables that the server reads.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # libraries read it once, when they are loaded, which is later

    import uvloop

    from tidemill_serving.server import serve

    try:
        status = uvloop.run(serve(read(), environment))
    except StartFailed as error:
        print(f"server.failed {error}", file=sys.stderr)  # noqa: T201  # standard error is the endpoint's log
        status = 1
    # Skip the interpreter's shutdown, which would wait for batch threads inside TensorFlow.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
