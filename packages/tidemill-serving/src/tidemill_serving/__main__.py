"""``python -m tidemill_serving``: serve the SavedModels of a model archive."""

import os
import sys


def main() -> int:
    """Run the server; the exit status."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read once, by libraries that are loaded from here on

    import uvloop

    from tidemill_serving.errors import StartFailed
    from tidemill_serving.options import read_options
    from tidemill_serving.server import serve

    try:
        return uvloop.run(serve(read_options(sys.argv[1:], os.environ), os.environ))
    except StartFailed as error:
        print(f"server.failed {error}", file=sys.stderr)  # noqa: T201  # standard error is the endpoint's log
        return 1


if __name__ == "__main__":
    # Batch threads may be inside TensorFlow; nothing that the interpreter would still do is worth waiting for them.
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
