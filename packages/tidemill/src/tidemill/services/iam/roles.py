"""Roles and their policies, for IAM's API. Only the owner of the service changes them."""

import json
import urllib.parse
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidemill.control.iam_roles import IamRole, IamRoles
from tidemill.core.names import role_arn, unique_id
from tidemill.core.policy_document import load_document, read_policy
from tidemill.errors import AwsError
from tidemill.services.operations import Operations
from tidemill.services.times import when
from tidemill.wire.exchange import Context

_TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
_SINCE_MS = 1_577_836_800_000
"""CreateDate of the roles that nobody created: 2020."""
_PAGE = 100
_OF_AWS = "arn:aws:iam::aws:policy/"


class RoleHandlers(Operations):
    """The operations of roles.

    Args:
        roles: The roles that were created.
    """

    def __init__(self, roles: IamRoles) -> None:
        self._roles = roles

    async def get_role(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Return a role: any name is one, so that a name can be converted to an ARN."""
        name = request["RoleName"]
        return {"Role": _shown(self._roles.find(name) or _of_nobody(name))}

    async def list_roles(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Return the roles that were created."""
        try:
            roles, marker = await self._roles.page(after=request.get("Marker"), limit=request.get("MaxItems", _PAGE))
        except ValueError as error:
            raise AwsError(f"Invalid Marker: {error}", code="ValidationError") from error
        shown = [_shown(role) for role in roles]
        return {"Roles": shown, "IsTruncated": marker is not None, **({"Marker": marker} if marker else {})}

    async def create_role(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        trust = request["AssumeRolePolicyDocument"]
        if not isinstance(_parsed(trust, "AssumeRolePolicyDocument"), dict):
            raise _malformed("AssumeRolePolicyDocument", "it is no object")
        role = IamRole(
            name=request["RoleName"],
            trust=trust,
            description=request.get("Description", ""),
            session_s=request.get("MaxSessionDuration", 3600),
        )
        return {"Role": _shown(await self._roles.create(role))}

    async def delete_role(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._roles.delete(request["RoleName"])
        return {}

    async def attach_role_policy(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Keep the ARN of a policy that AWS manages. There are no other managed policies here."""
        arn = request["PolicyArn"]
        if not arn.startswith(_OF_AWS):
            raise AwsError(
                f"Policy {arn} does not exist or is not attachable: there are only AWS's own ({_OF_AWS}NAME), without"
                " effect; give the role statements of your own with PutRolePolicy",
                code="NoSuchEntity",
            )
        await self._roles.change(
            request["RoleName"], lambda role: replace(role, attached=tuple(dict.fromkeys((*role.attached, arn))))
        )
        return {}

    async def detach_role_policy(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        arn = request["PolicyArn"]

        def without(role: IamRole) -> IamRole:
            if arn not in role.attached:
                raise AwsError(f"Policy {arn} was not found on role {role.name}.", code="NoSuchEntity")
            return replace(role, attached=tuple(each for each in role.attached if each != arn))

        await self._roles.change(request["RoleName"], without)
        return {}

    async def list_attached_role_policies(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Return the attached policies by name and ARN."""
        attached = self._existing(request).attached
        shown = [{"PolicyName": arn.rpartition("/")[2], "PolicyArn": arn} for arn in attached]
        return {"AttachedPolicies": shown, "IsTruncated": False}

    async def put_role_policy(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Add or replace an inline policy, which limits the keys of the role unless the settings name the role."""
        name, text = request["PolicyName"], request["PolicyDocument"]
        checked_policy(name, text)
        await self._roles.change(
            request["RoleName"], lambda role: replace(role, policies={**role.policies, name: text})
        )
        return {}

    async def get_role_policy(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Return an inline policy."""
        role, name = self._existing(request), request["PolicyName"]
        return {"RoleName": role.name, "PolicyName": name, "PolicyDocument": quoted(_policy(role, name))}

    async def delete_role_policy(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        name = request["PolicyName"]

        def without(role: IamRole) -> IamRole:
            _policy(role, name)
            return replace(role, policies={each: text for each, text in role.policies.items() if each != name})

        await self._roles.change(request["RoleName"], without)
        return {}

    async def list_role_policies(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Return the names of the inline policies."""
        return {"PolicyNames": sorted(self._existing(request).policies), "IsTruncated": False}

    def _existing(self, request: Mapping[str, Any]) -> IamRole:
        role = self._roles.find(request["RoleName"])
        if role is None:
            raise AwsError(f"The role with name {request['RoleName']} cannot be found.", code="NoSuchEntity")
        return role


def checked_policy(name: str, text: str) -> None:
    """Refuse the document of a policy that cannot be honored.

    Args:
        text: Its JSON.

    Raises:
        AwsError: MalformedPolicyDocument.
    """
    try:
        read_policy(_parsed(text, name))
    except ValueError as error:
        raise _malformed(name, str(error)) from error


def quoted(text: str) -> str:
    """Return a policy document in the form in which IAM sends it: URL-encoded.

    Args:
        text: JSON.
    """
    return urllib.parse.quote(text, safe="")


def _parsed(text: str, name: str) -> object:
    try:
        return load_document(text)
    except ValueError as error:
        raise _malformed(name, str(error)) from error


def _malformed(name: str, reason: str) -> AwsError:
    return AwsError(f"The policy {name!r} cannot be used: {reason}", code="MalformedPolicyDocument")


def _policy(role: IamRole, name: str) -> str:
    if name not in role.policies:
        raise AwsError(f"The role policy with name {name} cannot be found for role {role.name}.", code="NoSuchEntity")
    return role.policies[name]


def _of_nobody(name: str) -> IamRole:
    return IamRole(name=name, trust=json.dumps(_TRUST), created_ms=_SINCE_MS)


def _shown(role: IamRole) -> dict[str, Any]:
    return {
        "Path": "/",
        "RoleName": role.name,
        "RoleId": unique_id("AROA", role.name),
        "Arn": role_arn(role.name),
        "CreateDate": when(role.created_ms),
        "AssumeRolePolicyDocument": quoted(role.trust),
        "MaxSessionDuration": role.session_s,
        **({"Description": role.description} if role.description else {}),
    }
