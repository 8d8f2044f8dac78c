"""Find the service that the SDK talks to.

In this order: the caller's boto session; an endpoint that the environment or the settings name, with the environment's
keys; this user's own service, which is started if it is not running. The commands follow the same order
(`tidemill.cli.service`). Nothing is imported or started before the first request.
"""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.core.files import read_json
from tidemill.core.names import DEFAULT_REGION
from tidemill.core.process import ProcessId
from tidemill.errors import ConfigurationError
from tidemill.sdk.console import Console

if TYPE_CHECKING:
    from tidemill.settings import NamedEndpoint, Settings

_START_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class LocalService:
    """A running service of this user.

    Attributes:
        url: Base URL on loopback.
        region: AWS region that the service reports.
        pid: Process id of the service.
        access_key_id: This user's access key.
        secret_access_key: Secret of that key.
    """

    url: str
    region: str
    pid: int
    access_key_id: str
    secret_access_key: str


def connect(*, settings: "Settings | None" = None, console: Console | None = None) -> Any:
    """Return a boto3 session whose clients use the service.

    Raises:
        ConfigurationError: The local service does not start, or its files cannot be used.
    """
    from tidemill.sdk.boto import loopback_session  # imports boto3, so not at the top
    from tidemill.settings import Settings

    chosen = settings or Settings()
    if chosen.named_endpoint is not None:
        return connect_to(chosen.named_endpoint, region=chosen.region)
    service = find_local_service(chosen.state_dir) or _start(chosen.state_dir, console or Console(sys.stderr))
    return loopback_session(
        endpoint_url=service.url,
        region=service.region,
        access_key_id=service.access_key_id,
        secret_access_key=service.secret_access_key,
    )


def connect_to(endpoint: "NamedEndpoint", *, region: str) -> Any:
    """Return a boto3 session for a service that was named, with the keys of the environment.

    Args:
        endpoint: The service.
        region: Its region, if the environment names none.
    """
    from tidemill.sdk.boto import EndpointSession

    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or region
    return EndpointSession(endpoint_url=None if endpoint.is_botocores else endpoint.url, region_name=region)


def find_local_service(state_dir: Path) -> LocalService | None:
    """Return the service that runs on this state directory, or None.

    Raises:
        ConfigurationError: A service runs, but its files cannot be read.
    """
    try:
        entry = read_json(state_dir / "service.json")
        if entry is None or not ProcessId(entry["boot_id"], entry["pid"], entry["start_ticks"]).alive:
            return None
        keys = read_json(state_dir / "keys.json")
        if keys is None:
            raise ConfigurationError(
                f"{state_dir / 'keys.json'} is missing; restart the service: tidemill down && tidemill up"
            )
        return LocalService(
            url=entry["url"],
            region=entry.get("region", DEFAULT_REGION),
            pid=entry["pid"],
            access_key_id=keys["access_key_id"],
            secret_access_key=keys["secret_access_key"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"the local service's files in {state_dir} cannot be used: {type(error).__name__}: {error}."
            " Stop the service (tidemill down) and start it again (tidemill up)"
        ) from error


def _start(state_dir: Path, console: Console) -> LocalService:
    command = [sys.executable, "-m", "tidemill.cli", "up"]
    # A file, not a pipe: the service inherits the streams, so reading a pipe would block until the service ends.
    with tempfile.TemporaryFile() as output:
        try:
            status = subprocess.run(
                command,
                env={**os.environ, "TIDEMILL_STATE_DIR": str(state_dir.absolute())},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=_START_TIMEOUT_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            status = None
        service = find_local_service(state_dir)
        if service is None:
            output.seek(0)
            said = output.read().decode(errors="replace").strip()[-2000:]
            ended = (
                f"did not return within {_START_TIMEOUT_S:.0f} s" if status is None else f"ended with status {status}"
            )
            raise ConfigurationError(
                f"the local service does not run and could not be started: `{' '.join(command)}` {ended}."
                f" It said:\n{said}\n"
                "Run `tidemill up --foreground` to see why, or name another service with TIDEMILL_ENDPOINT_URL"
            )
    console.say(f"Started the tidemill service at {service.url} (process {service.pid}); `tidemill down` ends it.")
    return service
