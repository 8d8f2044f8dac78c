"""``python -m tidemill_serving``: serve the SavedModels of a model archive."""

import os
import sys
from typing import TYPE_CHECKING

from tidemill_serving.process import run_process

if TYPE_CHECKING:
    from tidemill_serving.options import ServerOptions


def main() -> None:
    """Run the server, or report what the user's code needs."""
    if "--report-needs" in sys.argv[1:]:
        from tidemill_serving.needs import report

        sys.exit(report())
    run_process(_options, os.environ)


def _options() -> "ServerOptions":
    from tidemill_serving.options import read_options

    return read_options(sys.argv[1:], os.environ)


if __name__ == "__main__":
    main()
