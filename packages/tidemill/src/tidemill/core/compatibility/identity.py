"""Rows of STS and IAM."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import Honored, Recorded, Refused, Rows, honored

_NO_DEVICE = Refused("users have no device for a second factor; leave it out")
_TOKEN_SIZE = Recorded("session tokens have one size, of 128 characters")
_NO_CONDITIONS = Recorded("no condition can read it: the key `aws:PrincipalTag` and its like are refused")
_DURATION = Honored("the keys end earlier if the caller's key does")

STS_OPERATIONS: Mapping[str, Rows] = {
    "GetCallerIdentity": {},
    "GetSessionToken": {
        "DurationSeconds": _DURATION,
        "SerialNumber": _NO_DEVICE,
        "TokenCode": _NO_DEVICE,
        "MinimumSessionTokenSize": _TOKEN_SIZE,
    },
    "AssumeRole": {
        "RoleArn": Honored(
            "any role; the policy that it was given limits the keys, which have no right that the caller lacks"
        ),
        "RoleSessionName": Honored("also the condition key `sts:RoleSessionName`"),
        "Policy": Honored("as in the settings"),
        "PolicyArns": Refused("there are no managed policies; send the statements as Policy"),
        "DurationSeconds": _DURATION,
        "Tags": _NO_CONDITIONS,
        "TransitiveTagKeys": _NO_CONDITIONS,
        "ExternalId": Honored("the condition key `sts:ExternalId`"),
        "SourceIdentity": _NO_CONDITIONS,
        "SerialNumber": _NO_DEVICE,
        "TokenCode": _NO_DEVICE,
        "ProvidedContexts": Refused("there is no other provider of identities; leave it out"),
        "MinimumSessionTokenSize": _TOKEN_SIZE,
    },
}

_USER = Honored("required: the owner of the service manages the keys of others")

_LISTED: Rows = {
    "RoleName": Honored(),
    "PathPrefix": Refused("policies have no path; leave it out", harmless=("/",)),
    "Marker": Refused("all policies of a role come in one reply; leave it out"),
    "MaxItems": Recorded("all policies of a role come in one reply"),
}

_NO_ACCOUNTS = Recorded("all resources belong to one account")
_SIMULATED: Rows = {
    "PolicyInputList": Honored("as in the settings"),
    "PermissionsBoundaryPolicyInputList": Honored(),
    "ActionNames": Honored("also of services that do not exist here"),
    "ResourceArns": Honored("one result for each pair of action and resource; `*` by default"),
    "ResourcePolicy": Refused("policies of buckets are not simulated; leave it out"),
    "ResourceOwner": _NO_ACCOUNTS,
    "CallerArn": Honored("whose values the condition keys about the caller have"),
    **honored("ContextEntries", "ContextEntries[].ContextKeyName", "ContextEntries[].ContextKeyValues"),
    "ContextEntries[].ContextKeyType": Recorded("the operator of a condition decides how values are compared"),
    "ResourceHandlingOption": Recorded("it is for instances of EC2"),
    **honored("MaxItems", "Marker"),
}

IAM_OPERATIONS: Mapping[str, Rows] = {
    "SimulatePrincipalPolicy": {
        **_SIMULATED,
        "PolicySourceArn": Honored(
            "a user; or a role by any name. A role without a policy has the built-in one, and may do every action of"
            " services that do not exist here"
        ),
        "PolicyExclusionList": Refused("all policies of the user or role are simulated; leave it out"),
    },
    "SimulateCustomPolicy": {
        **_SIMULATED,
        "OrderedOrganizationPolicyInputList": Refused("there are no organizations; leave it out"),
    },
    "GetRole": {"RoleName": Honored("any name is a role, created or not")},
    "ListRoles": {
        "PathPrefix": Refused("roles have no path; leave it out", harmless=("/",)),
        **honored("Marker", "MaxItems"),
    },
    "CreateRole": {
        "Path": Refused("roles have no path; leave it out", harmless=("/", "/service-role/")),
        "RoleName": Honored(),
        "AssumeRolePolicyDocument": Recorded("every user may assume every role, with no more rights than its own"),
        "Description": Honored(),
        "MaxSessionDuration": Recorded("sessions last as long as AssumeRole asks for"),
        "PermissionsBoundary": Refused("there are no managed policies; give the role statements with PutRolePolicy"),
        "Tags": _NO_CONDITIONS,
    },
    "DeleteRole": {"RoleName": Honored("a role with policies is refused; its name stays usable")},
    "AttachRolePolicy": {
        "RoleName": Honored(),
        "PolicyArn": Recorded(
            "AWS's managed policies are kept and shown: a role without an inline policy has the built-in policy. Others"
            " do not exist"
        ),
    },
    "DetachRolePolicy": {"RoleName": Honored(), "PolicyArn": Honored()},
    "ListAttachedRolePolicies": _LISTED,
    "PutRolePolicy": {
        "RoleName": Honored("the setting `roles` wins over it"),
        "PolicyName": Honored(),
        "PolicyDocument": Honored("as in the settings. Replaces the built-in policy"),
    },
    "GetRolePolicy": {"RoleName": Honored(), "PolicyName": Honored()},
    "DeleteRolePolicy": {"RoleName": Honored(), "PolicyName": Honored()},
    "ListRolePolicies": {name: row for name, row in _LISTED.items() if name != "PathPrefix"},
    "CreateAccessKey": {"UserName": _USER},
    "ListAccessKeys": {
        "UserName": _USER,
        "Marker": Refused("all keys of a user come in one reply; leave it out"),
        "MaxItems": Recorded("a user has at most two keys, which come in one reply"),
    },
    "DeleteAccessKey": {"UserName": _USER, "AccessKeyId": Honored()},
    "CreateUser": {
        "Path": Refused("users have no path; leave it out", harmless=("/",)),
        "UserName": Honored(),
        "PermissionsBoundary": Refused("there are no managed policies; give the user a policy with PutUserPolicy"),
        "Tags": Refused("users have no tags; leave it out"),
    },
    "GetUser": {"UserName": Honored("without it, the user that sends the request")},
    "DeleteUser": {"UserName": Honored("a user with keys or policies is refused")},
    "PutUserPolicy": {
        **honored("UserName", "PolicyName"),
        "PolicyDocument": Honored("as in the settings. With a policy, a user may do only what it allows"),
    },
    "GetUserPolicy": {"UserName": Honored(), "PolicyName": Honored()},
    "DeleteUserPolicy": {
        "UserName": Honored(),
        "PolicyName": Honored("without any policy, a user may do everything except manage users"),
    },
    "ListUserPolicies": {
        "UserName": Honored(),
        "Marker": Refused("all policies of a user come in one reply; leave it out"),
        "MaxItems": Recorded("all policies of a user come in one reply"),
    },
    "ListUsers": {
        "PathPrefix": Refused("users have no path; leave it out", harmless=("/",)),
        **honored("Marker", "MaxItems"),
    },
}
