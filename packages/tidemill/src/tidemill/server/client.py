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
    import botocore.loaders

    from tidemill.wire.protocols.models import OWN_MODELS

    core = session._session
    # Not a further path of the session's own loader, which may have noted already which services there are.
    loader = core.get_component("data_loader")
    core.register_component("data_loader", botocore.loaders.create_loader(str(OWN_MODELS)))
    try:
        return session.client("tidemill", endpoint_url=url)
    finally:
        core.register_component("data_loader", loader)
