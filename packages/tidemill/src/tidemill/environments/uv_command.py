"""Running uv: which binary, in which environment, with its output passed on line by line."""

import os
import selectors
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tidemill.errors import EnvironmentBuildError

__all__ = ["find_uv", "installer_variables", "run_command"]

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
"""The certificates that the machine trusts, in the families of Debian and of Red Hat."""
_POLL_S = 0.2
_LAST_LINES = 12


def find_uv() -> str:
    """Path of the uv binary: the one of the uv distribution, else the one on the path.

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


def installer_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of ``environ`` that says how packages and Pythons are found: indexes, proxies, certificates, pyenv.

    uv trusts what the machine trusts, as pip does and uv by default does not, so that it reaches an index behind a
    company's proxy too. ``UV_SYSTEM_CERTS`` overrides this.
    """
    trust = {"UV_SYSTEM_CERTS": "true"} if any(file.is_file() for file in _CERTIFICATES) else {}
    return trust | {
        name: value
        for name, value in environ.items()
        if name.startswith(_PREFIXES) or name.upper() in _NAMES
        # These would redirect the installation away from the environment that is being built.
        if name not in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON")
    }


def run_command(
    argv: Sequence[str],
    *,
    log: Callable[[str], None],
    poll: Callable[[], None],
    cwd: Path,
    inherit: Sequence[int] = (),
    started: Callable[[int], None] = lambda _pid: None,
) -> None:
    """Run ``argv`` to its end, passing every line that it prints to ``log``.

    Args:
        argv: Command and arguments.
        log: Is called with each line of output, without the line end.
        poll: Is called several times a second; what it raises ends the command.
        cwd: Working directory.
        inherit: File descriptors that the command keeps open, e.g. that of a lock.
        started: Is called once with the number of the process.

    Raises:
        EnvironmentBuildError: It ended with another status than 0; the text carries its last lines.
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
