"""A boto3 session whose clients and resources all use one endpoint.

The only module of the SDK that imports boto3 at the top, so it must only be imported when a session is created.
"""

import os
from collections.abc import Callable
from typing import Any

import boto3
from botocore.config import Config
from botocore.session import Session as CoreSession

_TRIES = 3
"""botocore's default of five tries, with growing pauses, would only delay a permanent error."""


class EndpointSession(boto3.Session):
    """A boto3 session with a default endpoint.

    Users create their own clients from `Session.boto_session`; these have to reach the same service.

    Args:
        endpoint_url: Default endpoint of clients; None uses botocore's configuration.
        **arguments: Arguments of `boto3.Session`.
    """

    def __init__(self, *, endpoint_url: str | None, **arguments: Any) -> None:
        if "botocore_session" not in arguments:
            arguments["botocore_session"] = _patient_session()
        super().__init__(**arguments)
        self.endpoint_url = endpoint_url

    def client(self, service_name: str, *args: Any, **arguments: Any) -> Any:
        """Create a client as boto3 does, with the session's endpoint as default.

        Args:
            service_name: For example ``sagemaker``.
            *args: As for boto3.
            **arguments: As for boto3; ``endpoint_url`` wins over the session's.

        Returns:
            The client.
        """
        client: Callable[..., Any] = super().client
        return client(service_name, *args, **self._at_home(arguments))

    def resource(self, service_name: str, *args: Any, **arguments: Any) -> Any:
        """Create a resource as boto3 does, with the session's endpoint as default.

        Args:
            service_name: For example ``s3``.
            *args: As for boto3.
            **arguments: As for boto3; ``endpoint_url`` wins over the session's.

        Returns:
            The resource.
        """
        resource: Callable[..., Any] = super().resource
        return resource(service_name, *args, **self._at_home(arguments))

    def _at_home(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if arguments.get("endpoint_url") is None and self.endpoint_url is not None:
            return {**arguments, "endpoint_url": self.endpoint_url}
        return arguments


def _patient_session() -> CoreSession:
    """Return a core session with three tries per request, unless the user's AWS configuration sets the number."""
    core = CoreSession()
    if core.get_config_variable("max_attempts") is None:
        core.set_default_client_config(Config(retries={"total_max_attempts": _TRIES}))
    return core


def loopback_session(*, endpoint_url: str, region: str, access_key_id: str, secret_access_key: str) -> EndpointSession:
    """Return a session for a service on this machine.

    The user's profiles, configuration files and HTTP proxies are ignored: they are meant for AWS, and a proxy would
    send loopback requests to another machine.

    Args:
        endpoint_url: Address of the service.
        region: AWS region for signatures and ARNs.
        access_key_id: Id of the key.
        secret_access_key: Its secret.
    """
    core = CoreSession(
        session_vars={
            "profile": (None, None, None, None),
            "config_file": (None, None, os.devnull, None),
            "credentials_file": (None, None, os.devnull, None),
        }
    )
    core.set_default_client_config(Config(proxies={}, retries={"mode": "standard", "total_max_attempts": _TRIES}))
    return EndpointSession(
        endpoint_url=endpoint_url,
        botocore_session=core,
        region_name=region,
        aws_access_key_id=access_key_id,
        aws_secret_access_key=secret_access_key,
    )
