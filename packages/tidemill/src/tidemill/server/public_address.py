"""The address with TLS for other machines, in addition to the plain one on loopback for this machine."""

import contextlib
import ipaddress
import socket
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path

from tidemill.errors import ConfigurationError
from tidemill.settings import Settings


@dataclass(frozen=True, slots=True)
class PublicAddress:
    """The address on which the service listens in addition to loopback.

    Attributes:
        host: Name or IP address to bind; a wildcard means all addresses of the machine.
        port: Port to bind; 0 selects any free port.
        tls: Certificate and key; None for plain HTTP.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None

    @classmethod
    def of(cls, settings: Settings) -> "PublicAddress | None":
        """Return the address in the settings, or None if the service listens on loopback only.

        Raises:
            ConfigurationError: There is no certificate, it cannot be used, or the settings contain no name by which
                clients reach a wildcard address.
        """
        host = settings.host.strip("[]")
        tls = _tls(settings)
        if tls is None and _is_loopback(host):
            return None
        if tls is None and not settings.allow_plain_http:
            raise ConfigurationError(
                f"host {settings.host!r} is not a loopback address, and without TLS others on the network could read"
                " what you send: give tls_certificate and tls_key (or --tls-certificate and --tls-key), or reach the"
                " service through a tunnel, e.g. `ssh -L 8780:127.0.0.1:8780 THIS_MACHINE`; allow_plain_http = true"
                " in the settings file accepts the risk"
            )
        if _is_wildcard(host) and not settings.allowed_hosts:
            raise ConfigurationError(
                f"host {settings.host!r} means all addresses of this machine: name those that clients use in the"
                ' setting allowed_hosts, e.g. allowed_hosts = ["tidemill.example", "192.168.1.10"]'
            )
        return cls(host, settings.port, tls)

    def listen(self) -> socket.socket:
        """Return a listening socket.

        Raises:
            ConfigurationError: The address is not one of this machine, or the port is taken.
        """
        try:
            return socket.create_server((self.host, self.port), family=_family(self.host), backlog=2048)
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on {self.host} port {self.port}: {error.strerror or error}; choose another with --host"
                " and --port"
            ) from error

    def url(self, sock: socket.socket) -> str:
        """Return the URL for clients; for a wildcard address, with this machine's name.

        Args:
            sock: The bound socket.
        """
        host = socket.gethostname() if _is_wildcard(self.host) else self.host
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls else 'http'}://{shown}:{sock.getsockname()[1]}"


def _tls(settings: Settings) -> ssl.SSLContext | None:
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        missing = "tls_key" if key is None else "tls_certificate"
        raise ConfigurationError(f"{missing} is missing: a certificate and its private key belong together")
    _check_private(key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=_no_passphrase)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"the certificate {certificate} with the key {key} cannot be used: {_reason(error, (certificate, key))};"
            " both are PEM files, the key without a passphrase"
        ) from error
    return context


def _check_private(key: Path) -> None:
    with contextlib.suppress(OSError):  # a file that is absent or cannot be read is named when it is loaded
        mode = stat.S_IMODE(key.stat().st_mode)
        if mode & 0o027:  # a group may read: Debian's keys are for the group ssl-cert
            raise ConfigurationError(
                f"tls_key {key} has mode {mode:04o}: others than its owner and its group can use the key, and"
                f" pretend to be this service. If nobody else has read it, `chmod 600 {key}`, else get a new key and"
                " certificate. If other programs need the file, make a copy with mode 0600 for this service"
            )


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase")


def _reason(error: Exception, files: tuple[Path, Path]) -> str:
    absent = [str(file) for file in files if not file.exists()]
    return f"there is no file {absent[0]}" if absent else str(error)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def _is_wildcard(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_unspecified
    return not host


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
