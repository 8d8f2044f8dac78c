"""A boto3 session for the local service, which ignores the user's environment and ``~/.aws``."""

from typing import Any

from tidemill.server.discovery import ServiceConnection


def boto_session(connection: ServiceConnection) -> Any:
    """Return a boto3 session whose clients use only ``connection``. The call imports boto3.

    Args:
        connection: Address and keys of a service on this machine.
    """
    from tidemill.sdk.boto import loopback_session

    return loopback_session(
        endpoint_url=connection.service.url,
        region=connection.service.region,
        access_key_id=connection.keys.access_key_id,
        secret_access_key=connection.keys.secret_access_key,
    )


def own_client(session: Any, url: str) -> Any:
    """Return a client of tidemill's own operations, whose model botocore does not have.

    Args:
        session: A boto3 session with the keys that sign its requests.
        url: URL of the service.
    """
    from tidemill.wire.protocols.models import OWN_MODELS

    paths: list[str] = session._session.get_component("data_loader").search_paths
    if str(OWN_MODELS) not in paths:
        paths.append(str(OWN_MODELS))
    return session.client("tidemill", endpoint_url=url)
