"""Run the server as the process that a command has started."""

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

from tidemill_serving.errors import StartFailed

# A thread that has run a model needs the interpreter for some microseconds, to pass on the outputs. Python's default, 5
# ms, is the time that it would wait for an event loop that is busy with requests.
_SWITCH_S = 0.000_5

if TYPE_CHECKING:
    from tidemill_serving.options import ServerOptions


def run_process(read: "Callable[[], ServerOptions]", environment: Mapping[str, str]) -> NoReturn:
    """Serve until a signal, and exit: with status 1 if the server cannot start, or does not answer every request.

    Args:
        read: Returns the options; may raise StartFailed.
        environment: Variables that the server reads.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # libraries read it once, when they are loaded, which is later

    sys.setswitchinterval(_SWITCH_S)

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
