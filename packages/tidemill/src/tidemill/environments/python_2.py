"""Python 2.7, on which only scripts run: its packages, and a job's own layer above them.

uv installs nothing for Python 2. The layer is a virtual environment of the last virtualenv that makes one, whose pip
installs the lock. tidemill's runtime stays on the Python 3 of the environment, and starts the script by the commands
of the job's layer.
"""

import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tidemill._shared.trees import remove_tree
from tidemill.environments.interpreters import FoundInterpreter
from tidemill.environments.uv_command import BuildWatch, find_uv, run_command
from tidemill.environments.venv_files import PIP
from tidemill.errors import EnvironmentBuildError

_VIRTUALENV = Path(__file__).parent / "locks/virtualenv.txt"

# pip installs into the job's layer, also if the script calls it by sys.executable. An absolute path would be wrong in
# one of both places: the layer is seen below /opt/ml.
_PYTHON = """\
#!/bin/sh
PIP_TARGET=$(cd "${{0%/*}}/../lib/python2.7/site-packages" && pwd)
case ":$PYTHONPATH:" in *":$PIP_TARGET:"*) ;; *) PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}$PIP_TARGET" ;; esac
export PIP_TARGET PYTHONPATH
exec {python} "$@"
"""


@dataclass(frozen=True, slots=True)
class ScriptLayer:
    """The packages of scripts that run on another Python than the runtime.

    Attributes:
        prefix: Directory of the virtual environment.
        interpreter: Its Python.
    """

    prefix: Path
    interpreter: FoundInterpreter


def build_script_layer(
    layer: ScriptLayer, lock: Path, *, watch: BuildWatch, lock_fd: int, own: FoundInterpreter | None = None
) -> None:
    """Create the virtual environment of a script layer, and install its lock.

    Args:
        layer: What to build; its directory must not exist.
        lock: Lock file for pip, with hashes.
        watch: Sees the lines of pip.
        lock_fd: File descriptor of the build lock, which the installers keep open.
        own: The Python that runs virtualenv. Default: that of tidemill.

    Raises:
        EnvironmentBuildError: virtualenv or pip failed.
    """
    run = partial(run_command, log=watch.log, poll=watch.poll, cwd=layer.prefix.parent, inherit=(lock_fd,))
    tools = layer.prefix.with_name(f"{layer.prefix.name}.tools")
    remove_tree(tools)
    try:
        python = (own or FoundInterpreter.own()).executable
        run((find_uv(), "venv", "--quiet", "--no-project", "--python", str(python), str(tools)))
        install = (find_uv(), "pip", "install", "--quiet", "--python", str(tools / "bin/python"))
        run((*install, "--require-hashes", "-r", str(_VIRTUALENV)))
        made = (str(tools / "bin/python"), "-m", "virtualenv", "--quiet", "--no-download")
        run((*made, "--app-data", str(tools / "data"), "-p", str(layer.interpreter.executable), str(layer.prefix)))
        watch.log("tidemill: pip installs the packages for Python 2.7; this takes some minutes")
        pip = (str(layer.prefix / "bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
        run((*pip, "--no-deps", "--require-hashes", "-r", str(lock)))
    except EnvironmentBuildError as error:
        raise EnvironmentBuildError(f"the packages of {lock} cannot be installed: {error}") from error
    finally:
        remove_tree(tools)


def write_script_venv(prefix: Path, layer: ScriptLayer) -> None:
    """Write a job's own layer above a script layer: ``python``, ``pip``, and a directory for what the job installs.

    Args:
        prefix: Its directory, which must be missing or empty; it may be moved.

    Raises:
        OSError: The directory cannot be written.
    """
    (prefix / "lib/python2.7/site-packages").mkdir(parents=True)
    commands = prefix / "bin"
    commands.mkdir()
    python = _PYTHON.format(python=shlex.quote(str(layer.prefix / "bin/python")))
    for name, text in (("python", python), ("pip", PIP)):
        for command in (name, f"{name}2", f"{name}2.7"):
            (commands / command).write_text(text)
            (commands / command).chmod(0o755)
