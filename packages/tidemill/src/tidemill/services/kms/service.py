"""KMS: CreateKey, CreateAlias, DescribeKey, ListKeys and ListAliases.

A key is a name here. There is no operation that encrypts or decrypts, so no client can take a name for protection.
"""

from collections.abc import Mapping
from typing import Any

from tidemill.control.kms_keys import KmsKey, KmsKeys
from tidemill.core.names import ACCOUNT_ID
from tidemill.services.times import when
from tidemill.wire.exchange import Context, Handler

__all__ = ["KmsService"]

_KEYS_PAGE, _ALIASES_PAGE = 100, 50


class KmsService:
    """Describes the keys that were created or named.

    Args:
        keys: The keys.
    """

    def __init__(self, keys: KmsKeys) -> None:
        self._keys = keys

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "CreateAlias": self.create_alias,
            "CreateKey": self.create_key,
            "DescribeKey": self.describe_key,
            "ListAliases": self.list_aliases,
            "ListKeys": self.list_keys,
        }

    async def create_alias(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._keys.create_alias(request["AliasName"], target=request["TargetKeyId"])
        return {}

    async def create_key(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {"KeyMetadata": _metadata(await self._keys.create(description=request.get("Description", "")))}

    async def describe_key(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {"KeyMetadata": _metadata(await self._keys.get(request["KeyId"]))}

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


def _page(marker: str | None) -> dict[str, Any]:
    return {"Truncated": True, "NextMarker": marker} if marker else {"Truncated": False}


def _metadata(key: KmsKey) -> dict[str, Any]:
    return {
        "AWSAccountId": ACCOUNT_ID,
        "KeyId": key.key_id,
        "Arn": key.arn,
        "CreationDate": when(key.created_ms),
        "Enabled": True,
        "Description": key.description,
        "KeyUsage": "ENCRYPT_DECRYPT",
        "KeyState": "Enabled",
        "Origin": "AWS_KMS",
        "KeyManager": "AWS" if key.managed else "CUSTOMER",
        "CustomerMasterKeySpec": "SYMMETRIC_DEFAULT",
        "KeySpec": "SYMMETRIC_DEFAULT",
        "EncryptionAlgorithms": ["SYMMETRIC_DEFAULT"],
        "MultiRegion": False,
    }
