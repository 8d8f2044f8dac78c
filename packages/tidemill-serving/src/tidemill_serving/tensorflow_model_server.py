"""The command ``tensorflow_model_server``: TensorFlow Serving's flags, its ports and its log lines."""

import importlib.metadata
import json
import os
import sys
from typing import TYPE_CHECKING

from tidemill_serving import __version__
from tidemill_serving.flags import FlagError, FlagValues, read_flags, usage
from tidemill_serving.process import run_process

if TYPE_CHECKING:
    from tidemill_serving.options import ServerOptions

_OWN_VARIABLES = "TIDEMILL_SERVING_"
_WRONG_COMMAND_LINE = 2
_ALL_ADDRESSES = "0.0.0.0"  # noqa: S104


def main() -> None:
    """Run the command."""
    if "--help" in sys.argv[1:]:
        print(usage())  # noqa: T201
        return
    try:
        flags = read_flags(sys.argv[1:])
    except FlagError as error:
        print(f"tensorflow_model_server: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(_WRONG_COMMAND_LINE)
    if flags.is_on("version"):
        print(f"TensorFlow ModelServer: {__version__} (tidemill-serving)\nTensorFlow Library: {_library()}")  # noqa: T201
        return
    os.dup2(2, 1)  # TensorFlow Serving's log is its standard error
    # Variables of SageMaker's container configure endpoints; this command is configured by its flags.
    environment = {name: value for name, value in os.environ.items() if name.startswith(_OWN_VARIABLES)}
    run_process(lambda: _options(flags, environment), environment)


def _options(flags: FlagValues, environment: dict[str, str]) -> "ServerOptions":
    from tidemill_serving.options import read_options
    from tidemill_serving.report import event

    for flag, value in flags.without_effect():
        event("flag.ignored", name=f"--{flag.name}", value=json.dumps(value), reason=json.dumps(flag.note))
    options = read_options(["--wait-for-versions", *flags.arguments()], environment)
    if options.host == _ALL_ADDRESSES and "host" not in flags.given:
        advice = "any machine that reaches this one may send requests: --host=127.0.0.1 serves this machine only"
        event("network.open", address=options.host, advice=json.dumps(advice))
    return options


def _library() -> str:
    """Return the version of the installed TensorFlow without importing it."""
    for name in ("tensorflow", "tensorflow-cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "none: pip install 'tidemill-serving[tensorflow]'"


if __name__ == "__main__":
    main()
