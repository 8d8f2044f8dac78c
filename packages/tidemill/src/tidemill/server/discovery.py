"""How clients on this machine find the service: `service.json` in the state directory.

The file is written when the socket listens and removed at a normal exit. After a crash it remains, so readers use it
only if the process that it identifies is alive.
"""

from dataclasses import asdict, dataclass

from tidemill.core.clock import Clock
from tidemill.core.documents import parsed
from tidemill.core.files import read_json, write_json
from tidemill.core.process import ProcessId
from tidemill.errors import ConfigurationError
from tidemill.server.keys import Keys
from tidemill.server.state import StateDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRecord:
    """Content of `service.json`.

    Attributes:
        pid: Process id; with ``boot_id`` and ``start_ticks`` it identifies the service's process.
        url: URL of the service, e.g. ``http://127.0.0.1:8780``.
        region: AWS region of the service.
        started_ms: Time when the socket began to listen, in milliseconds since the epoch.
        public_url: URL for other machines; empty if they cannot reach it.
        aws_proxy_port: Port of the proxy of `tidemill env --sts`; 0 if it does not listen, None if the service is of a
            version that has none.
    """

    pid: int
    boot_id: str
    start_ticks: int
    url: str
    region: str
    started_ms: int
    public_url: str = ""
    aws_proxy_port: int | None = None
    version: int = 1

    @classmethod
    def of_this_process(cls, *, url: str, region: str, clock: Clock, public_url: str = "") -> "ServiceRecord":
        """Return the record of the calling process.

        Args:
            url: Address on this machine.
            public_url: Address for other machines; empty without one.
        """
        own = ProcessId.own()
        return cls(
            pid=own.pid,
            boot_id=own.boot_id,
            start_ticks=own.start_ticks,
            url=url,
            region=region,
            started_ms=clock.now_ms(),
            public_url=public_url,
            aws_proxy_port=0,
        )

    @property
    def process(self) -> ProcessId:
        """Identity of the service's process."""
        return ProcessId(self.boot_id, self.pid, self.start_ticks)

    def publish(self, state: StateDirectory) -> None:
        """Write the record to the file that `find_service` reads.

        Args:
            state: The state directory.
        """
        write_json(state.service_file, asdict(self))


@dataclass(frozen=True, slots=True)
class ServiceConnection:
    """A running service and the keys with which a client on this machine signs requests."""

    service: ServiceRecord
    keys: Keys


def find_service(state: StateDirectory) -> ServiceRecord | None:
    """Return the running service of a state directory, or None. The record of a dead service is ignored.

    Raises:
        ConfigurationError: If the record cannot be read.
    """
    try:
        content = read_json(state.service_file)
        record = None if content is None else parsed(ServiceRecord, content)  # ignores members of newer versions
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigurationError(
            f"{state.service_file} is not a service record ({error}); a newer tidemill may have written it:"
            " update this one, or delete the file if no service runs"
        ) from error
    return record if record is not None and record.process.alive else None


def connect(state: StateDirectory) -> ServiceConnection | None:
    """Return the running service of a state directory with its keys, or None if no service runs.

    Raises:
        ConfigurationError: The keys cannot be used.
    """
    record = find_service(state)
    keys = Keys.load(state.keys_file) if record is not None else None
    return ServiceConnection(record, keys) if record is not None and keys is not None else None
