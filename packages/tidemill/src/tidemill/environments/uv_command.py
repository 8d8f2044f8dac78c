"""Run uv: find its binary, select its environment variables, and pass on its output line by line."""

import os
import selectors
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemill.core.shell_proxy import without_shell_proxy
from tidemill.errors import EnvironmentBuildError

_PREFIXES = ("PIP_", "UV_")
_NAMES = frozenset(
    {
        "ALL_PROXY",
        "CURL_CA_BUNDLE",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "NO_PROXY",
        "PYENV_ROOT",
        "REQUESTS_CA_BUNDLE",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
    }
)
_CERTIFICATES = (Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pki/tls/certs/ca-bundle.crt"))
"""Files with the certificates that the machine trusts, on Debian and Red Hat and their derivatives."""
_POLL_S = 0.2
_LAST_LINES = 12


def find_uv() -> str:
    """Return the path of the uv binary: that of the Python distribution ``uv``, else the one on PATH.

    Raises:
        EnvironmentBuildError: uv was not found.
    """
    try:
        import uv

        return uv.find_uv_bin()
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        raise EnvironmentBuildError("uv was not found, neither as a Python distribution nor on PATH; pip install uv")
    return found


def configures_installers(name: str) -> bool:
    """Return whether an environment variable determines how pip and uv find packages."""
    return name.startswith(_PREFIXES) or name.upper() in _NAMES


def installer_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ``environ`` that determine how packages and Pythons are found.

    These configure indexes, proxies, certificates and pyenv. By default, uv does not trust the certificates that the
    machine trusts, unlike pip. ``UV_SYSTEM_CERTS`` is set so that uv does, and reaches an index behind a company's
    proxy; a value in ``environ`` takes precedence.

    Args:
        environ: Variables of a process.
    """
    trust = {"UV_SYSTEM_CERTS": "true"} if any(file.is_file() for file in _CERTIFICATES) else {}
    return trust | {
        name: value
        for name, value in without_shell_proxy(environ).items()
        if configures_installers(name) and not name.startswith("UV_PUBLISH_")  # secrets that no installation needs
        # These would redirect the installation away from the environment that is being built.
        if name not in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON")
    }


@dataclass(frozen=True, slots=True)
class BuildWatch:
    """What watches a build.

    Attributes:
        log: Called with lines about the build.
        poll: Called several times a second; an exception ends the build, or the wait for another process's.
    """

    log: Callable[[str], None]
    poll: Callable[[], None]


def run_command(
    argv: Sequence[str],
    *,
    log: Callable[[str], None],
    poll: Callable[[], None],
    cwd: Path,
    inherit: Sequence[int] = (),
    started: Callable[[int], None] = lambda _pid: None,
) -> None:
    """Run ``argv`` to its end, and pass every line that it prints to ``log``.

    Args:
        log: Called with each line of standard output and error, without the line end.
        poll: Called several times a second; if it raises, the command is killed.
        cwd: Working directory.
        inherit: File descriptors that the command keeps open, e.g. that of a lock. Default: none.
        started: Called once with the process id.

    Raises:
        EnvironmentBuildError: The command's exit status is not 0; the message has the last lines of output.
    """
    keep = {name: os.environ[name] for name in ("HOME", "PATH", "TMPDIR", "TIDEMILL_INSTANCE") if name in os.environ}
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        env=keep | {"LANG": "C.UTF-8"} | installer_variables(os.environ),
        pass_fds=tuple(inherit),
        start_new_session=True,
    )
    started(process.pid)
    last: deque[str] = deque(maxlen=_LAST_LINES)

    def take(line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        last.append(text)
        log(text)

    try:
        _read_lines(process, take, poll)
        status = process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        if process.stdout:
            process.stdout.close()
    if status != 0:
        raise EnvironmentBuildError(f"{' '.join(argv[:3])} ... ended with status {status}: " + "\n".join(last))


def _read_lines(process: subprocess.Popen[bytes], take: Callable[[bytes], None], poll: Callable[[], None]) -> None:
    if process.stdout is None:
        return
    fd, rest = process.stdout.fileno(), b""
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while True:
            poll()
            if not selector.select(_POLL_S):
                continue
            chunk = os.read(fd, 65536)
            if not chunk:
                break
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                take(line)
    if rest:
        take(rest)
