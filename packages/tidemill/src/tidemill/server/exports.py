"""The environment that directs unmodified AWS clients to the local service, and the configuration file that it names.

One endpoint variable serves every boto3 client. Two requests would still leave the machine: the SDK's telemetry, and
its look-up of the default bucket, which asks STS at AWS's own address. The SDK's configuration file prevents both.
"""

import os
from collections.abc import Mapping

from tidemill.core.files import write_durably
from tidemill.core.names import default_bucket
from tidemill.server.discovery import ServiceConnection
from tidemill.server.state import StateDirectory

__all__ = ["REMOVED_VARIABLES", "client_environment", "write_client_files"]

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


def _proxy_exception(ambient: Mapping[str, str]) -> dict[str, str]:
    if not any(ambient.get(name) for name in _PROXIES):
        return {}
    hosts = [host for host in (ambient.get("no_proxy") or ambient.get("NO_PROXY") or "").split(",") if host]
    value = ",".join(dict.fromkeys(["127.0.0.1", "localhost", "::1", *hosts]))
    return {"NO_PROXY": value, "no_proxy": value}
