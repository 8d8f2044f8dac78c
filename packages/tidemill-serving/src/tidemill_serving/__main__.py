"""``python -m tidemill_serving``: serve the SavedModels of a model archive."""

import os
import sys


def main() -> int:
    """Run the server and return the exit status."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # libraries read it once, when they are loaded, which is later

    import uvloop

    from tidemill_serving.errors import StartFailed
    from tidemill_serving.options import read_options
    from tidemill_serving.server import serve

    try:
        options = read_options(sys.argv[1:], os.environ)
        return uvloop.run(serve(options, os.environ))
    except StartFailed as error:
        print(f"server.failed {error}", file=sys.stderr)  # noqa: T201  # standard error is the endpoint's log
        return 1


if __name__ == "__main__":
    if "--report-needs" in sys.argv[1:]:
        from tidemill_serving.needs import report

        sys.exit(report())
    status = main()
    # Skip the interpreter's shutdown, which would wait for batch threads inside TensorFlow.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
