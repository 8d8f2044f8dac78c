"""The environment that directs unmodified AWS clients to the local service, and the configuration file that it names.

One endpoint variable serves every boto3 client. Two requests would still leave the machine: the SDK's telemetry, and
its look-up of the default bucket, which asks STS at AWS's own address. The SDK's configuration file prevents both.
"""

import hashlib
import os
import signal
import ssl
import time
from collections.abc import Mapping
from pathlib import Path

from tidemill.core.files import write_durably
from tidemill.core.names import default_bucket
from tidemill.core.shell_proxy import BUNDLES, own_bundle, upstream_of, write_bundle
from tidemill.errors import ConfigurationError
from tidemill.server.aws_proxy import ProxyTokens
from tidemill.server.discovery import ServiceConnection, ServiceRecord, find_service
from tidemill.server.state import StateDirectory

REMOVED_VARIABLES = ("AWS_PROFILE", "AWS_SECURITY_TOKEN", "AWS_SESSION_TOKEN")
"""Variables that would override the exports, or invalidate their signatures."""

_SDK_DEFAULTS = """\
# Written by tidemill at every start of the service. AWS's SageMaker Python SDK reads it.
SchemaVersion: '1.0'
SageMaker:
  PythonSDK:
    Modules:
      TelemetryOptOut: true
      Session:
        DefaultS3Bucket: {bucket}
"""

_PROXY_TIMEOUT_S = 15.0
_LOOK_EVERY_S = 0.02

_PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


def write_client_files(state: StateDirectory, *, region: str) -> None:
    """Write the files that `client_environment` names.

    Args:
        state: The state directory.
        region: AWS region.
    """
    content = _SDK_DEFAULTS.format(bucket=default_bucket(region))
    write_durably(state.client / "sagemaker.yaml", content.encode())


def client_environment(
    connection: ServiceConnection, *, state: StateDirectory, ambient: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the variables with which boto3, the AWS CLI and AWS's SDKs use the service, in the order of printing.

    Args:
        ambient: The environment to which they will be added. Default: this process's. If it names an HTTP proxy,
            loopback is added to ``NO_PROXY``, because a proxy cannot reach loopback.
    """
    region = connection.service.region
    variables = {
        "AWS_ENDPOINT_URL": connection.service.url,
        "AWS_ACCESS_KEY_ID": connection.keys.access_key_id,
        "AWS_SECRET_ACCESS_KEY": connection.keys.secret_access_key,
        "AWS_DEFAULT_REGION": region,
        "AWS_REGION": region,
        "AWS_EC2_METADATA_DISABLED": "true",
        "SAGEMAKER_USER_CONFIG_OVERRIDE": str(state.client / "sagemaker.yaml"),
        "SAGEMAKER_SUPPRESS_V2_WARNING": "1",
        "SAGEMAKER_VALIDATE_ROLE": "false",
    }
    return variables | _proxy_exception(os.environ if ambient is None else ambient)


def proxy_environment(
    service: ServiceRecord, *, state: StateDirectory, ambient: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the variables that also send requests to AWS's own host names to the service, by its proxy.

    The proxy is opened if it is not. The proxy that ``ambient`` names, if any, still serves all other hosts.

    Args:
        service: The running service.
        ambient: The environment to which they will be added. Default: this process's.

    Raises:
        ConfigurationError: The service has no proxy, or does not open it in time.
    """
    ambient = os.environ if ambient is None else ambient
    tokens = ProxyTokens(state.proxy_tokens)
    tokens.create()
    port = _proxy_port(service, state)
    certificate, _ = state.authority
    bundle = str(_bundle(certificate, state=state, ambient=ambient))
    url = tokens.url(port, upstream=upstream_of(ambient))
    return {
        "HTTPS_PROXY": url,
        "https_proxy": url,
        **_loopback_excepted(ambient),
        **dict.fromkeys(BUNDLES, bundle),
        "NODE_EXTRA_CA_CERTS": str(certificate),
    }


def _proxy_port(service: ServiceRecord, state: StateDirectory) -> int:
    """Return the port of the service's proxy; ask for the proxy if it does not listen yet."""
    if service.aws_proxy_port is None:
        raise ConfigurationError(
            f"the service at {service.url} was started by a version of tidemill that has no proxy for AWS's host names:"
            " `tidemill down`, `tidemill up`, then try again; jobs continue meanwhile"
        )
    if service.aws_proxy_port:
        return service.aws_proxy_port
    os.kill(service.pid, signal.SIGUSR1)
    deadline_s = time.monotonic() + _PROXY_TIMEOUT_S
    while time.monotonic() < deadline_s:
        record = find_service(state)
        if record is not None and record.aws_proxy_port:
            return record.aws_proxy_port
        time.sleep(_LOOK_EVERY_S)
    raise ConfigurationError(
        f"the service at {service.url} did not open its proxy within {_PROXY_TIMEOUT_S:g} s; see {state.service_log}"
    )


def _bundle(certificate: Path, *, state: StateDirectory, ambient: Mapping[str, str]) -> Path:
    """Write what the shell trusts, and the service's authority, to one file, and return it."""
    from botocore.httpsession import get_cert_path

    own = own_bundle(ambient)
    if own is not None:
        return own  # the shell uses the proxy already
    named = [Path(ambient[name]) for name in BUNDLES if ambient.get(name)]
    system = ssl.get_default_verify_paths().cafile
    trusted = list(dict.fromkeys(named)) or [Path(system or str(get_cert_path(True)))]
    try:
        content = b"\n".join([path.read_bytes() for path in trusted] + [certificate.read_bytes()])
    except OSError as error:
        raise ConfigurationError(
            f"the certificates that this shell trusts cannot be read: {error.filename}: {error.strerror}; mend or unset"
            f" {', '.join(name for name in BUNDLES if ambient.get(name))}"
        ) from error
    name = hashlib.sha256(content).hexdigest()[:16]
    return write_bundle(content, directory=state.client, name=name, environ=ambient)


def _proxy_exception(ambient: Mapping[str, str]) -> dict[str, str]:
    if not any(ambient.get(name) for name in _PROXIES):
        return {}
    return _loopback_excepted(ambient)


def _loopback_excepted(ambient: Mapping[str, str]) -> dict[str, str]:
    hosts = [host for host in (ambient.get("no_proxy") or ambient.get("NO_PROXY") or "").split(",") if host]
    value = ",".join(dict.fromkeys(["127.0.0.1", "localhost", "::1", *hosts]))
    return {"NO_PROXY": value, "no_proxy": value}
