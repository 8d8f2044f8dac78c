"""PresignDownload: an address by which a browser downloads one object, without a header that only scripts can send."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from tidemill.errors import AwsError
from tidemill.services.operations import Operations
from tidemill.wire.exchange import Context
from tidemill.wire.signing.credentials import CredentialLookup

LIFETIME_S = 60
"""Validity in seconds: the browser follows the address at once, and keeps it in its history."""


class DownloadOperations(Operations):
    """Signs downloads with the key of the caller.

    Args:
        credentials: Finds the secret of that key.
        region: Region of the signature.
    """

    def __init__(self, credentials: CredentialLookup, *, region: str) -> None:
        self._credentials = credentials
        self._region = region

    async def presign_download(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Return the presigned address of a GET whose answer the browser saves and never shows."""
        from botocore.auth import S3SigV4QueryAuth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        credential = self._credentials.lookup(context.caller.access_key_id)
        if credential is None:
            raise AwsError("The key of the caller was revoked meanwhile.", code="AccessDeniedException")
        bucket, key = request["Bucket"], request["Key"]
        name = quote(key.rpartition("/")[2] or "object", safe="")
        query = {"response-content-disposition": f"attachment; filename*=UTF-8''{name}"}
        if "VersionId" in request:
            query["versionId"] = request["VersionId"]
        text = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        path = f"/{quote(bucket, safe='')}/{quote(key, safe='/-_.~')}"
        signed = AWSRequest("GET", f"{context.scheme}://{context.headers['host']}{path}?{text}")
        keys = Credentials(credential.access_key_id, credential.secret_access_key, credential.session_token)
        S3SigV4QueryAuth(keys, "s3", self._region, expires=LIFETIME_S).add_auth(signed)
        return {"Url": signed.url}
