"""IAM: roles; users, their access keys, and their inline policies. Only the owner of the service manages them.

Any well-formed name is a role that SageMaker may assume, created or not: AWS's SDKs need no more to convert a role's
name to its ARN.
"""

from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any

from tidemill.control.iam_roles import IamRoles
from tidemill.control.user_keys import User, UserKey, UserKeys, user_arn
from tidemill.core.names import unique_id
from tidemill.core.roles import Roles
from tidemill.errors import AwsError
from tidemill.services.iam.roles import RoleHandlers, checked_policy, quoted
from tidemill.services.iam.simulation import SimulationHandlers
from tidemill.services.operations import Operations
from tidemill.services.times import when
from tidemill.wire.exchange import Context, Handler, Reply

_PAGE = 100
_OF_OWNER = frozenset(
    (
        *("AttachRolePolicy", "CreateAccessKey", "CreateRole", "CreateUser", "DeleteAccessKey", "DeleteRole"),
        *("DeleteRolePolicy", "DeleteUser", "DeleteUserPolicy", "DetachRolePolicy", "GetUserPolicy", "ListAccessKeys"),
        *("ListUserPolicies", "ListUsers", "PutRolePolicy", "PutUserPolicy"),
    )
)
"""Operations that are for the owner alone, whatever a policy allows. So is GetUser of another user."""


class IamService(Operations):
    """Manages roles and users.

    Args:
        roles: The roles that were created.
        owner: Access key id of the owner, who may manage them.
    """

    def __init__(self, keys: UserKeys, roles: IamRoles, policies: Roles, *, owner: str) -> None:
        self._keys = keys
        self._roles = RoleHandlers(roles)
        self._simulation = SimulationHandlers(keys, roles, policies, of_owner=_OF_OWNER)
        self._owner = owner

    @property
    def handlers(self) -> Mapping[str, Handler]:
        handlers: dict[str, Handler] = {
            **self._roles.handlers,
            **self._simulation.handlers,
            **super().handlers,
        }
        return {
            name: partial(self._for_owner, handler) if name in _OF_OWNER else handler
            for name, handler in handlers.items()
        }

    def _for_owner(
        self, handler: Handler, request: dict[str, Any], context: Context
    ) -> Awaitable[Mapping[str, Any] | Reply]:
        self._require_owner(context)
        return handler(request, context)

    async def create_access_key(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        key = await self._keys.create(_user(request))
        return {"AccessKey": {**_metadata(key), "SecretAccessKey": key.secret_access_key}}

    async def list_access_keys(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        keys = self._keys.keys_of(_user(request))
        return {"AccessKeyMetadata": [_metadata(key) for key in keys], "IsTruncated": False}

    async def delete_access_key(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._keys.delete(request["AccessKeyId"], user=_user(request))
        return {}

    async def list_users(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        try:
            names, marker = await self._keys.users(after=request.get("Marker"), limit=request.get("MaxItems", _PAGE))
        except ValueError as error:
            raise AwsError(f"Invalid Marker: {error}", code="ValidationError") from error
        users = [_shown(user) for name in names if (user := self._keys.user(name)) is not None]
        return {"Users": users, "IsTruncated": marker is not None, **({"Marker": marker} if marker else {})}

    async def create_user(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {"User": _shown(await self._keys.create_user(_user(request)))}

    async def get_user(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        caller = context.caller.arn  # of a session of a role, it may have any text
        own = caller.removeprefix(user_arn("")) if caller.startswith(user_arn("")) else ""
        if not own or request.get("UserName", own) != own:
            self._require_owner(context)
        return {"User": _shown(self._existing(request.get("UserName") or own or _user(request)))}

    async def delete_user(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._keys.delete_user(_user(request))
        return {}

    async def put_user_policy(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        name, text = request["PolicyName"], request["PolicyDocument"]
        checked_policy(name, text)
        await self._keys.change_policies(_user(request), lambda held: {**held, name: text})
        return {}

    async def get_user_policy(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        user, name = self._existing(_user(request)), request["PolicyName"]
        text = quoted(_policy(user.policies, name, user.name))
        return {"UserName": user.name, "PolicyName": name, "PolicyDocument": text}

    async def delete_user_policy(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        user, name = _user(request), request["PolicyName"]

        def without(held: Mapping[str, str]) -> dict[str, str]:
            _policy(held, name, user)
            return {each: text for each, text in held.items() if each != name}

        await self._keys.change_policies(user, without)
        return {}

    async def list_user_policies(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {"PolicyNames": sorted(self._existing(_user(request)).policies), "IsTruncated": False}

    def _existing(self, name: str) -> User:
        user = self._keys.user(name)
        if user is None:
            raise AwsError(f"The user with name {name} cannot be found.", code="NoSuchEntity")
        return user

    def _require_owner(self, context: Context) -> None:
        if context.caller.access_key_id != self._owner:
            raise AwsError(
                f"User: {context.caller.arn} is not authorized to perform: iam:{context.operation}: only the owner of"
                " the service manages access keys, users and roles, with the keys that `tidemill env` prints on the"
                " machine of the service",
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


def _policy(policies: Mapping[str, str], name: str, user: str) -> str:
    if name not in policies:
        raise AwsError(f"The user policy with name {name} cannot be found for user {user}.", code="NoSuchEntity")
    return policies[name]


def _shown(user: User) -> dict[str, Any]:
    return {
        "Path": "/",
        "UserName": user.name,
        "UserId": unique_id("AIDA", user.name),
        "Arn": user_arn(user.name),
        "CreateDate": when(user.created_ms),
    }


def _metadata(key: UserKey) -> dict[str, Any]:
    return {
        "UserName": key.user,
        "AccessKeyId": key.access_key_id,
        "Status": "Active",
        "CreateDate": when(key.created_ms),
    }
