"""KMS: CreateKey, CreateAlias, DescribeKey, ListKeys and ListAliases, the state of a key, and its recorded policy.

A key is a name here. There is no operation that encrypts or decrypts, so no client can take a name for protection.
"""

import json
from collections.abc import Mapping
from typing import Any

from tidemill.control.kms_keys import KmsKey, KmsKeys
from tidemill.core.names import ACCOUNT_ID
from tidemill.errors import AwsError, ValidationException
from tidemill.services.operations import Operations
from tidemill.services.times import when
from tidemill.wire.exchange import Context

_DEFAULT_POLICY = {
    "Version": "2012-10-17",
    "Id": "key-default-1",
    "Statement": [
        {
            "Sid": "Enable IAM User Permissions",
            "Effect": "Allow",
            "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT_ID}:root"},
            "Action": "kms:*",
            "Resource": "*",
        }
    ],
}
"""The policy of a key that was created without one, as on AWS."""
_WINDOW_DAYS = (7, 30)
_KEYS_PAGE, _ALIASES_PAGE = 100, 50


class KmsService(Operations):
    """Describes the keys that were created or named."""

    def __init__(self, keys: KmsKeys) -> None:
        self._keys = keys

    async def create_alias(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._keys.create_alias(request["AliasName"], target=request["TargetKeyId"])
        return {}

    async def create_key(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        key = await self._keys.create(
            description=request.get("Description", ""), policy=_checked(request.get("Policy", ""))
        )
        return {"KeyMetadata": _metadata(key)}

    async def describe_key(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {"KeyMetadata": _metadata(await self._keys.get(request["KeyId"]))}

    async def get_key_policy(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        key = await self._keys.get(request["KeyId"])
        return {"Policy": key.policy or json.dumps(_DEFAULT_POLICY), "PolicyName": "default"}

    async def put_key_policy(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._keys.set_policy(request["KeyId"], _checked(request["Policy"]))
        return {}

    async def schedule_key_deletion(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        days = request.get("PendingWindowInDays") or _WINDOW_DAYS[-1]
        if not _WINDOW_DAYS[0] <= days <= _WINDOW_DAYS[-1]:
            raise ValidationException(
                f"PendingWindowInDays is {days}; allowed are {_WINDOW_DAYS[0]} to {_WINDOW_DAYS[-1]}"
            )
        key = await self._keys.schedule_deletion(request["KeyId"], days=days)
        return {
            "KeyId": key.arn,
            "KeyState": key.state,
            "DeletionDate": when(key.deletion_ms),
            "PendingWindowInDays": days,
        }

    async def cancel_key_deletion(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {"KeyId": (await self._keys.cancel_deletion(request["KeyId"])).arn}

    async def enable_key(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._keys.enable(request["KeyId"], enabled=True)
        return {}

    async def disable_key(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._keys.enable(request["KeyId"], enabled=False)
        return {}

    async def list_aliases(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        found, marker = await self._keys.aliases(
            of=request.get("KeyId"), after=request.get("Marker"), limit=request.get("Limit", _ALIASES_PAGE)
        )
        entries = [
            {
                "AliasName": alias.name,
                "AliasArn": alias.arn,
                "TargetKeyId": alias.key.partition(":key/")[2],
                "CreationDate": when(alias.created_ms),
                "LastUpdatedDate": when(alias.created_ms),
            }
            for alias in found
        ]
        return {"Aliases": entries, **_page(marker)}

    async def list_keys(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        found, marker = await self._keys.keys(after=request.get("Marker"), limit=request.get("Limit", _KEYS_PAGE))
        return {"Keys": [{"KeyId": key.key_id, "KeyArn": key.arn} for key in found], **_page(marker)}


def _checked(policy: str) -> str:
    """Return a policy that is JSON, as AWS requires.

    Raises:
        AwsError: MalformedPolicyDocumentException (400).
    """
    try:
        if policy:
            json.loads(policy)
    except (ValueError, RecursionError) as error:
        raise AwsError(f"The policy is not JSON: {error}", code="MalformedPolicyDocumentException") from error
    return policy


def _page(marker: str | None) -> dict[str, Any]:
    return {"Truncated": True, "NextMarker": marker} if marker else {"Truncated": False}


def _metadata(key: KmsKey) -> dict[str, Any]:
    return {
        "AWSAccountId": ACCOUNT_ID,
        "KeyId": key.key_id,
        "Arn": key.arn,
        "CreationDate": when(key.created_ms),
        "Enabled": key.state == "Enabled",
        "Description": key.description,
        "KeyUsage": "ENCRYPT_DECRYPT",
        "KeyState": key.state,
        **({"DeletionDate": when(key.deletion_ms)} if key.deletion_ms else {}),
        "Origin": "AWS_KMS",
        "KeyManager": "AWS" if key.managed else "CUSTOMER",
        "CustomerMasterKeySpec": "SYMMETRIC_DEFAULT",
        "KeySpec": "SYMMETRIC_DEFAULT",
        "EncryptionAlgorithms": ["SYMMETRIC_DEFAULT"],
        "MultiRegion": False,
    }
