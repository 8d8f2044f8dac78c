"""The verbs that the shim calls: ``python -m tidemill_runtime train | install | extract | warm``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def main(arguments: list[str]) -> int:
    """Run one verb.

    Args:
        arguments: Command line without the program.

    Returns:
        Exit status.
    """
    options = _parser().parse_args(arguments)
    if options.verb == "extract":
        return _extract(options)
    if options.verb == "warm":
        return _warm(options)
    from tidemill_runtime.training import install_requirements, train

    variables = _container_variables()
    if options.verb == "install":
        return install_requirements(variables=variables, prefix=options.prefix, requirements=options.requirements)
    return train(variables=variables, entrypoint=options.entrypoint)


def _container_variables() -> Mapping[str, str]:
    """Return the job's environment variables.

    The shim passes them through a file, not as this process's own environment: ``PYTHONPATH`` or ``LD_PRELOAD`` would
    run the user's code in the runtime, whose report about needed packages the shim believes.
    """
    fd = os.environ.get("TIDEMILL_VARIABLES_FD")
    if not fd:
        return os.environ
    import json  # not at the top, where it could be the user's: see below

    with os.fdopen(int(fd), "rb") as file:
        variables: dict[str, str] = json.load(file)
    return variables


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tidemill_runtime", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    train = verbs.add_parser("train", help="run the job described below /opt/ml")
    train.add_argument("entrypoint", nargs="*", help="after --: a command to run in place of the submitted script")
    install = verbs.add_parser("install", help="install the packages that `train` has reported as needed")
    install.add_argument("prefix", type=Path, help="directory of the virtual environment")
    install.add_argument("requirements", type=Path)
    extract = verbs.add_parser("extract", help="unpack a .tar.gz safely")
    extract.add_argument("archive", type=Path)
    extract.add_argument("directory", type=Path)
    extract.add_argument("--max-bytes", type=int)
    extract.add_argument("--max-entries", type=int)
    warm = verbs.add_parser("warm", help="import modules once, and fork scripts for jobs that ask on a unix socket")
    warm.add_argument("--socket", type=Path, required=True)
    warm.add_argument("--import", dest="modules", action="append", default=[], metavar="MODULE")
    return parser


def _extract(options: argparse.Namespace) -> int:
    from tidemill_runtime.archive import ArchiveLimits, extract
    from tidemill_runtime.errors import InvalidArchive

    defaults = ArchiveLimits()
    limits = ArchiveLimits(
        max_bytes=defaults.max_bytes if options.max_bytes is None else options.max_bytes,
        max_entries=defaults.max_entries if options.max_entries is None else options.max_entries,
    )

    def show(line: str) -> None:
        sys.stdout.write(line)
        sys.stdout.flush()

    try:
        extract(options.archive, options.directory, limits=limits, show=show)
    except (InvalidArchive, OSError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


def _warm(options: argparse.Namespace) -> int:
    from tidemill_runtime.errors import ConfigurationError
    from tidemill_runtime.variables import SCRIPT_DEFAULTS
    from tidemill_runtime.warm import serve

    if sys.flags.isolated:
        sys.stderr.write("ConfigurationError: the warm process must run without -I, as scripts do\n")
        return 1
    variables = {**SCRIPT_DEFAULTS, **os.environ}
    if variables != dict(os.environ):
        # The interpreter itself reads some of these variables when it starts, so it must start again with them.
        os.execve(sys.executable, [sys.executable, "-m", "tidemill_runtime", *sys.argv[1:]], variables)  # noqa: S606
    try:
        script = serve(options.socket, modules=options.modules, variables=variables)
    except (ConfigurationError, ImportError, OSError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return script.run()


if __name__ == "__main__":
    if not sys.flags.isolated and sys.path[0] in ("", str(Path.cwd())):
        del sys.path[0]  # the user's json.py must not replace the standard one
    sys.exit(main(sys.argv[1:]))
