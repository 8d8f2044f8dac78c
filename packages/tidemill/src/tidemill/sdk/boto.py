"""boto3 with a home: a session whose every client and resource goes to one endpoint.

The only module of the SDK that imports boto3 at its head, so it is imported when a session is made, never before.
"""

import os
from collections.abc import Callable
from typing import Any

import boto3
from botocore.config import Config
from botocore.session import Session as CoreSession

__all__ = ["EndpointSession", "loopback_session"]


class EndpointSession(boto3.Session):
    """A boto3 session with a default endpoint.

    Users take `Session.boto_session` and make clients of their own; these have to reach the same service.

    Args:
        endpoint_url: Where clients go unless told otherwise; None leaves it to botocore's own configuration.
        **arguments: boto3's own.
    """

    def __init__(self, *, endpoint_url: str | None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.endpoint_url = endpoint_url

    def client(self, service_name: str, *args: Any, **arguments: Any) -> Any:
        """As boto3's, at the session's endpoint."""
        client: Callable[..., Any] = super().client
        return client(service_name, *args, **self._at_home(arguments))

    def resource(self, service_name: str, *args: Any, **arguments: Any) -> Any:
        """As boto3's, at the session's endpoint."""
        resource: Callable[..., Any] = super().resource
        return resource(service_name, *args, **self._at_home(arguments))

    def _at_home(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if arguments.get("endpoint_url") is None and self.endpoint_url is not None:
            return {**arguments, "endpoint_url": self.endpoint_url}
        return arguments


def loopback_session(*, endpoint_url: str, region: str, access_key_id: str, secret_access_key: str) -> EndpointSession:
    """A session for a service on this machine.

    Profiles, configuration files and HTTP proxies of the user are left out: they were written for AWS, and a proxy
    would take requests for loopback out of the machine.
    """
    core = CoreSession(
        session_vars={
            "profile": (None, None, None, None),
            "config_file": (None, None, os.devnull, None),
            "credentials_file": (None, None, os.devnull, None),
        }
    )
    core.set_default_client_config(Config(proxies={}))
    return EndpointSession(
        endpoint_url=endpoint_url,
        botocore_session=core,
        region_name=region,
        aws_access_key_id=access_key_id,
        aws_secret_access_key=secret_access_key,
    )
