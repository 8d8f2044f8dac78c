"""The verbs that the shim calls: ``python -m tidemill_runtime train | install | extract``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

__all__ = ["main"]


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
    from tidemill_runtime.training import install_requirements, train

    if options.verb == "install":
        return install_requirements(variables=os.environ, overlay=options.overlay, requirements=options.requirements)
    return train(variables=os.environ, entrypoint=options.entrypoint)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tidemill_runtime", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    train = verbs.add_parser("train", help="run the job described below /opt/ml")
    train.add_argument("entrypoint", nargs="*", help="after --: a command to run in place of the submitted script")
    install = verbs.add_parser("install", help="install what `train` asked for with exit status 75")
    install.add_argument("overlay", type=Path)
    install.add_argument("requirements", type=Path)
    extract = verbs.add_parser("extract", help="unpack a .tar.gz safely")
    extract.add_argument("archive", type=Path)
    extract.add_argument("directory", type=Path)
    extract.add_argument("--max-bytes", type=int)
    extract.add_argument("--max-entries", type=int)
    return parser


def _extract(options: argparse.Namespace) -> int:
    from tidemill_runtime.archive import Limits, extract
    from tidemill_runtime.errors import InvalidArchive

    defaults = Limits()
    limits = Limits(
        max_bytes=defaults.max_bytes if options.max_bytes is None else options.max_bytes,
        max_entries=defaults.max_entries if options.max_entries is None else options.max_entries,
    )
    try:
        extract(options.archive, options.directory, limits=limits)
    except (InvalidArchive, OSError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    if not sys.flags.isolated and sys.path[0] in ("", str(Path.cwd())):
        del sys.path[0]  # the user's json.py must not stand in for ours
    sys.exit(main(sys.argv[1:]))
