"""The method Profile of tensorflow.ProfilerService: record what the operations of the models do, for TensorBoard.

TensorFlow's profiler works without importing TensorFlow. It writes where the client says, so only clients of this
machine may call it.
"""

import importlib
import tempfile
import threading
from pathlib import Path
from typing import Any

from tidemill_serving.errors import Code, RequestError, invalid
from tidemill_serving.grpc_api.lookup import parsed
from tidemill_serving.messages.definitions import messages

PROFILE_PATH = b"/tensorflow.ProfilerService/Profile"
REMOTE = (
    "profiles are written to the disk of the server's machine, and only clients of that machine may ask for them: call"
    " the server's loopback address there"
)
_DEFAULT_LEVELS = {"host_tracer_level": 2, "device_tracer_level": 1, "python_tracer_level": 0}
_never = threading.Event()


class Profiler:
    """Records one profile at a time, for all models of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def profile(self, data: bytes, left_s: float) -> Any:
        """Record for as long as the request says, write the profile to a file, and return a ProfileResponse.

        Args:
            data: A serialized ProfileRequest.
            left_s: Time until the call's deadline, in seconds.

        Raises:
            RequestError: The request is wrong, another profile is being recorded, or the file cannot be written.
        """
        request = parsed("ProfileRequest", data)
        duration_s = (request.duration_ms or request.opts.duration_ms) / 1000
        if not 0 < duration_s < left_s:
            raise invalid(f"a profile of {duration_s} s: expected more than 0, and less than the call's {left_s:.1f} s")
        file = _file_of(request) if request.repository_root else None
        if not self._lock.acquire(blocking=False):
            raise RequestError(Code.UNAVAILABLE, "another profile is being recorded; try again later")
        try:
            space = messages().XSpace.FromString(_record(duration_s, _levels(request.opts)))
        finally:
            self._lock.release()
        if request.host_name:  # the server's name for the client
            space.hostnames[:] = [request.host_name]
        profile = space.SerializeToString()
        if file is not None:
            _write(file, profile)
        is_empty = not any(line.events for plane in space.planes for line in plane.lines)
        response = messages().ProfileResponse(empty_trace=is_empty)
        if request.emit_xspace:
            response.xspace = profile
        return response


def _file_of(request: Any) -> Path:
    """Return the path where TensorBoard looks for the profile.

    Raises:
        RequestError: INVALID_ARGUMENT, it is no path of this machine.
    """
    root, host = Path(request.repository_root), request.host_name.replace(":", "_")
    for name in (request.session_id, host):
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise invalid(f"session_id and host_name are parts of a path, but one of them is {name!r}")
    if not root.is_absolute() or "\0" in request.repository_root:
        raise invalid(f"repository_root {request.repository_root!r} is no absolute path of the server's machine")
    return root / request.session_id / f"{host}.xplane.pb"


def _levels(options: Any) -> dict[str, int]:
    return {name: getattr(options, name) for name in _DEFAULT_LEVELS} if options.version else _DEFAULT_LEVELS


def _record(duration_s: float, levels: dict[str, int]) -> bytes:
    """Return a serialized XSpace, which TensorFlow offers as a file only."""
    native = importlib.import_module("tensorflow.python.profiler.internal._pywrap_profiler")
    session = native.ProfilerSession()
    with tempfile.TemporaryDirectory(prefix="tidemill-profile-") as directory:
        try:
            session.start(directory, levels)
            _never.wait(duration_s)
            session.export_to_tb()
        except Exception as error:  # TensorFlow's errors are classes of the package that is not imported
            raise RequestError(Code.UNAVAILABLE, f"TensorFlow's profiler failed: {error}") from error
        (file,) = Path(directory).rglob("*.xplane.pb")
        return file.read_bytes()


def _write(file: Path, profile: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as made:  # a new file: a client may not change others of the server's user
            made.write(profile)
    except FileExistsError as error:
        raise invalid(f"{file} exists, and profiles do not replace files: name another session_id") from error
    except OSError as error:
        raise RequestError(Code.PERMISSION_DENIED, f"the profile cannot be written: {error}") from error
