"""``python -m tidemill_serving``: serve the SavedModels of a model archive."""

import hashlib
import json
import os
import sys
from pathlib import Path

_NEEDS_OVERLAY_STATUS = 75


def main() -> int:
    """Run the server and return the exit status."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # libraries read it once, when they are loaded, which is later

    import uvloop

    from tidemill_serving.errors import NeedsPackages, StartFailed
    from tidemill_serving.options import read_options
    from tidemill_serving.server import serve

    request: Path | None = None
    try:
        options = read_options(sys.argv[1:], os.environ)
        request = options.overlay_request
        return uvloop.run(serve(options, os.environ))
    except NeedsPackages as needed:
        assert request is not None  # NeedsPackages is only raised if the starter passed a request path
        _ask_for(needed.requirements, request)
        return _NEEDS_OVERLAY_STATUS
    except StartFailed as error:
        print(f"server.failed {error}", file=sys.stderr)  # noqa: T201  # standard error is the endpoint's log
        return 1


def _ask_for(requirements: Path, request: Path) -> None:
    """Write the request for packages to install, in the format of the runtime of jobs."""
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    temporary = request.with_name(f".{request.name}.tmp")
    temporary.write_text(json.dumps({"requirements": str(requirements), "sha256": digest}), encoding="utf-8")
    temporary.replace(request)


if __name__ == "__main__":
    # Skip the interpreter's shutdown, which would wait for batch threads inside TensorFlow.
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
