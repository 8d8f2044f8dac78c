"""Clients of S3 stores. The only module that imports boto3 for an instance's shim, and only if it is needed.

boto3's default chain finds credentials, in the process that uses them. They are never written to disk, and their
provider renews expiring ones, however long a job runs and whether or not the service is running.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from tidemill.core.remotes import RemoteS3

if TYPE_CHECKING:
    import ssl

_LINK_LIFETIME_S = 900
_SERVER_FAULTS = 500


class RemoteUnusable(Exception):
    """A remote S3 cannot be used, e.g. without credentials; the message says why and what to do."""


class UploadRefused(Exception):
    """The store refuses an object permanently; the message is the store's own."""


def upload_client(variables: Mapping[str, str]) -> Any:
    """Return a client of the service's own S3 with the keys of a job.

    Args:
        variables: ``AWS_ENDPOINT_URL`` and keys, as the job's script gets them.
    """
    import boto3
    from botocore.config import Config

    session = boto3.session.Session(
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        aws_session_token=variables.get("AWS_SESSION_TOKEN"),
        region_name=variables["AWS_REGION"],
    )
    # Uploads have their own schedule of retries, and must notice a stop request in between.
    config = Config(connect_timeout=5, read_timeout=60, retries={"total_max_attempts": 1}, proxies={})
    return session.client("s3", endpoint_url=variables["AWS_ENDPOINT_URL"], config=config)


def upload(client: Any, source: BinaryIO, *, bucket: str, key: str) -> None:
    """Upload the content of ``source``.

    Raises:
        UploadRefused: The store refuses it permanently.
        OSError: The store is unreachable or failed; the same upload may succeed later.
    """
    from boto3.exceptions import S3UploadFailedError
    from boto3.s3.transfer import TransferConfig
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        client.upload_fileobj(source, bucket, key, Config=TransferConfig(use_threads=False))
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] < _SERVER_FAULTS:
            raise UploadRefused(str(error)) from error
        raise OSError(str(error)) from error
    except (BotoCoreError, S3UploadFailedError) as error:
        raise OSError(str(error)) from error


def remote_client(remote: RemoteS3, keys: Mapping[str, str] | None = None, *, connect_timeout_s: float = 10) -> Any:
    """Return a client of a remote S3, which several threads may use.

    Args:
        keys: ``AWS_*`` variables with the keys to sign with. None searches this process's environment and files.
        connect_timeout_s: Longest time until a connection is made, of each of four attempts.

    Raises:
        RemoteUnusable: There is no such profile, or there are no credentials.
    """
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    config = Config(
        signature_version=UNSIGNED if remote.anonymous else "s3v4",
        connect_timeout=connect_timeout_s,
        read_timeout=60,
        retries={"mode": "standard", "total_max_attempts": 4},
        max_pool_connections=32,
        # Transfers connect to the endpoint directly, not through a proxy.
        proxies={},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    try:
        session = (
            boto3.session.Session(profile_name=remote.profile, region_name=remote.region)
            if keys is None
            else boto3.session.Session(
                aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
                aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"],
                aws_session_token=keys.get("AWS_SESSION_TOKEN"),
                region_name=remote.region,
            )
        )
        if not remote.anonymous and session.get_credentials() is None:
            raise RemoteUnusable(
                f"there are no credentials for {remote.endpoint_url}. Give the service AWS_ACCESS_KEY_ID and"
                " AWS_SECRET_ACCESS_KEY or a profile, and each machine of a cluster likewise (before `ray"
                " start`), or set anonymous = true for this entry of remote_s3"
            )
        return session.client("s3", endpoint_url=remote.endpoint_url, config=config, verify=_certificates())
    except (BotoCoreError, ValueError) as error:
        raise RemoteUnusable(f"{remote.endpoint_url} cannot be asked: {error}") from error


def presigned_get(client: Any, bucket: str, key: str) -> str:
    """Return a URL that reads an object, for requests that begin within the next minutes.

    Raises:
        RemoteUnusable: The credentials have expired and cannot be renewed.
    """
    from botocore.exceptions import BotoCoreError

    try:
        url = client.generate_presigned_url(
            "get_object", Params={"Bucket": bucket, "Key": key}, ExpiresIn=_LINK_LIFETIME_S
        )
    except BotoCoreError as error:
        raise RemoteUnusable(f"a request for s3://{bucket}/{key} cannot be signed: {error}") from error
    return str(url)


def tls_context() -> "ssl.SSLContext":
    """Return a TLS context that verifies servers with the same certificates as `remote_client`."""
    import ssl

    from botocore.httpsession import get_cert_path

    return ssl.create_default_context(cafile=_certificates() or get_cert_path(True))


def remote_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the ``variables`` from which boto3 gets credentials and certificates.

    Args:
        variables: Variables of a process.
    """
    return {name: value for name, value in variables.items() if name.startswith("AWS_") or name == "SSL_CERT_FILE"}


def _certificates() -> str | None:
    return os.environ.get("AWS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE")
