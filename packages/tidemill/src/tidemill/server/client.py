"""A boto3 session for the local service that nothing in the user's shell or ``~/.aws`` can send elsewhere."""

from typing import Any

from tidemill.server.discovery import Connection

__all__ = ["boto_session"]


def boto_session(connection: Connection) -> Any:
    """Return a boto3 session whose clients talk to ``connection`` alone. boto3 is imported by this call."""
    from tidemill.sdk.boto import loopback_session

    return loopback_session(
        endpoint_url=connection.service.url,
        region=connection.service.region,
        access_key_id=connection.keys.access_key_id,
        secret_access_key=connection.keys.secret_access_key,
    )
