"""Rows of KMS: the keys that requests name. tidemill encrypts nothing with them."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import Honored, Recorded, Refused, Rows, honored

_NO_STORE = Refused("there are no key stores: keys are only names here; leave it out")
_NO_EFFECT = Recorded("policies of keys have no effect, because nothing is encrypted")
_POLICY_NAME = Honored(only=("default",), instead="leave it out")
_NO_GRANTS = Recorded("nothing is granted for a key, because nothing is encrypted with it")

OPERATIONS: Mapping[str, Rows] = {
    "CancelKeyDeletion": {"KeyId": Honored("no alias; the key is disabled then, as on AWS; EnableKey enables it")},
    "CreateAlias": {"AliasName": Honored("`alias/aws/` is reserved"), "TargetKeyId": Honored()},
    "CreateKey": {
        "Policy": _NO_EFFECT,
        "Description": Honored(),
        "KeyUsage": Honored(only=("ENCRYPT_DECRYPT",), instead="leave it out"),
        "CustomerMasterKeySpec": Honored(only=("SYMMETRIC_DEFAULT",), instead="leave it out"),
        "KeySpec": Honored(only=("SYMMETRIC_DEFAULT",), instead="leave it out"),
        "Origin": Honored(only=("AWS_KMS",), instead="leave it out"),
        "CustomKeyStoreId": _NO_STORE,
        "XksKeyId": _NO_STORE,
        "BypassPolicyLockoutSafetyCheck": _NO_EFFECT,
        "Tags": Recorded("no operation shows the tags of keys"),
        "MultiRegion": Refused("there is one region; leave it out"),
    },
    "DescribeKey": {
        "KeyId": Honored("a key that CreateKey made, or that a request for S3 or SageMaker has named"),
        "GrantTokens": _NO_GRANTS,
    },
    "DisableKey": {
        "KeyId": Honored("no alias; requests to store objects with it are refused, while objects can be read")
    },
    "EnableKey": {"KeyId": Honored("no alias, as on AWS")},
    "GetKeyPolicy": {"KeyId": Honored(), "PolicyName": _POLICY_NAME},
    "ListAliases": {"KeyId": Honored(), "Limit": Honored(), "Marker": Honored()},
    "ListKeys": {
        **honored("Limit", "Marker"),
        "ResourceOwners": Recorded("there is one account, whose keys are listed"),
    },
    "PutKeyPolicy": {
        "KeyId": Honored("no alias, as on AWS"),
        "PolicyName": _POLICY_NAME,
        "Policy": _NO_EFFECT,
        "BypassPolicyLockoutSafetyCheck": _NO_EFFECT,
    },
    "ScheduleKeyDeletion": {
        "KeyId": Honored(
            "no alias; requests to store objects with it are refused, while objects can be read; it is never removed,"
            " because it has no material"
        ),
        "PendingWindowInDays": Honored("7 to 30; only shown, as DeletionDate"),
    },
}
