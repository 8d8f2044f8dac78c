"""A boto3 session for the local service that nothing in the user's shell or ``~/.aws`` can send elsewhere."""

import os
from typing import Any

from tidemill.server.discovery import Connection

__all__ = ["boto_session"]


def boto_session(connection: Connection) -> Any:
    """A boto3 session whose clients talk to ``connection`` alone.

    Profiles, the user's AWS configuration files and HTTP proxies are left out: they were written for AWS.

    Returns:
        A `boto3.Session`. boto3 is imported by this call.
    """
    from botocore.config import Config
    from botocore.session import Session

    from tidemill.sdk.boto import EndpointSession

    core = Session(
        session_vars={
            "profile": (None, None, None, None),
            "config_file": (None, None, os.devnull, None),
            "credentials_file": (None, None, os.devnull, None),
        }
    )
    core.set_default_client_config(Config(proxies={}, retries={"mode": "standard", "max_attempts": 3}))
    return EndpointSession(
        endpoint_url=connection.service.url,
        botocore_session=core,
        aws_access_key_id=connection.keys.access_key_id,
        aws_secret_access_key=connection.keys.secret_access_key,
        region_name=connection.service.region,
    )
