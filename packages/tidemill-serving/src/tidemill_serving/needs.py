"""``python -m tidemill_serving --report-needs``: report which packages the user's code needs, without running it.

The starter of the server installs them before the server, and with it the user's code, is started.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from tidemill_serving.errors import StartFailed
from tidemill_serving.handlers.code import locate_code, required_packages


def report() -> int:
    """Write ``{"requirements": PATH}``, or ``{}``, to the descriptor of ``TIDEMILL_NEEDS_FD``; return the exit status.

    The variables of the server are read from the descriptor of ``TIDEMILL_VARIABLES_FD``, so that none of them affects
    this process.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--report-needs", action="store_true")
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("--kind", required=True)
    parser.add_argument("--code-dir", type=Path, required=True)
    options = parser.parse_args()
    with os.fdopen(int(os.environ["TIDEMILL_VARIABLES_FD"]), "rb") as file:
        variables: dict[str, str] = json.load(file)
    try:
        code = locate_code(options.kind, options.model_dir, options.code_dir, variables, note=lambda _line: None)
    except StartFailed as error:
        print(f"server.failed {error}", file=sys.stderr)  # noqa: T201  # standard error is the endpoint's log
        return 1
    requirements = required_packages(code) if code else None
    message = {"requirements": str(requirements)} if requirements else {}
    with os.fdopen(int(variables["TIDEMILL_NEEDS_FD"]), "wb") as pipe:
        pipe.write(json.dumps(message).encode())
    return 0
