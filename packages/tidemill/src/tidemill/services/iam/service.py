"""IAM: GetRole; CreateAccessKey, ListAccessKeys, DeleteAccessKey and ListUsers.

Roles are not managed: any well-formed name is a role that SageMaker may assume. AWS's SDKs need no more to convert a
role's name to its ARN. A user exists while it has a key. Only the owner of the service manages keys.
"""

import json
import re
import urllib.parse
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tidemill.control.user_keys import UserKey, UserKeys, user_arn
from tidemill.core.names import role_arn
from tidemill.errors import AwsError
from tidemill.services.times import when
from tidemill.wire.exchange import Context, Handler

__all__ = ["IamService"]

_TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
_PAGE = 100


class IamService:
    """Returns a well-formed role for any name, and manages the keys of users.

    Args:
        keys: The keys of users.
        owner: Access key id of the owner, who may manage them.
    """

    def __init__(self, keys: UserKeys, *, owner: str) -> None:
        self._keys = keys
        self._owner = owner

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "GetRole": self.get_role,
            "CreateAccessKey": self.create_access_key,
            "ListAccessKeys": self.list_access_keys,
            "DeleteAccessKey": self.delete_access_key,
            "ListUsers": self.list_users,
        }

    async def get_role(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        name = request["RoleName"]
        return {
            "Role": {
                "Path": "/",
                "RoleName": name,
                "RoleId": _unique_id("AROA", name),
                "Arn": role_arn(name),
                "CreateDate": datetime(2020, 1, 1, tzinfo=UTC),
                "AssumeRolePolicyDocument": urllib.parse.quote(json.dumps(_TRUST), safe=""),
                "MaxSessionDuration": 3600,
            }
        }

    async def create_access_key(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        self._require_owner(context)
        key = await self._keys.create(_user(request))
        return {"AccessKey": {**_metadata(key), "SecretAccessKey": key.secret_access_key}}

    async def list_access_keys(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        self._require_owner(context)
        keys = self._keys.keys_of(_user(request))
        return {"AccessKeyMetadata": [_metadata(key) for key in keys], "IsTruncated": False}

    async def delete_access_key(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        self._require_owner(context)
        await self._keys.delete(request["AccessKeyId"], user=_user(request))
        return {}

    async def list_users(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        self._require_owner(context)
        try:
            names, marker = await self._keys.users(after=request.get("Marker"), limit=request.get("MaxItems", _PAGE))
        except ValueError as error:
            raise AwsError(f"Invalid Marker: {error}", code="ValidationError") from error
        users = [
            {
                "Path": "/",
                "UserName": name,
                "UserId": _unique_id("AIDA", name),
                "Arn": user_arn(name),
                "CreateDate": when(self._keys.keys_of(name)[0].created_ms),
            }
            for name in names
            if self._keys.keys_of(name)
        ]
        return {"Users": users, "IsTruncated": marker is not None, **({"Marker": marker} if marker else {})}

    def _require_owner(self, context: Context) -> None:
        if context.caller.access_key_id != self._owner:
            raise AwsError(
                f"User: {context.caller.arn} is not authorized to perform: iam:{context.operation}: only the owner of"
                " the service manages access keys, with the keys that `tidemill env` prints on the service's machine",
                code="AccessDenied",
            )


def _user(request: Mapping[str, Any]) -> str:
    name: str | None = request.get("UserName")
    if name is None:
        raise AwsError(
            "UserName is missing: the owner's own key is made by the service, and has no user; name one",
            code="ValidationError",
        )
    return name


def _metadata(key: UserKey) -> dict[str, Any]:
    return {
        "UserName": key.user,
        "AccessKeyId": key.access_key_id,
        "Status": "Active",
        "CreateDate": when(key.created_ms),
    }


def _unique_id(prefix: str, name: str) -> str:
    # Ids contain only letters and digits.
    return prefix + re.sub("[^0-9A-Z]", "", name.upper())[:12].ljust(12, "0") + "TIDE"
