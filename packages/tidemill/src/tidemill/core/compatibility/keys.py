"""Rows of KMS: the keys that requests name. tidemill encrypts nothing with them."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import Honoured, Recorded, Refused, Rows

__all__ = ["OPERATIONS"]

_NO_STORE = Refused("there are no key stores: keys are only names here; leave it out")
_NO_EFFECT = Recorded("policies of keys have no effect, because nothing is encrypted")
_POLICY_NAME = Honoured(only=("default",), instead="leave it out")
_NO_GRANTS = Recorded("nothing is granted for a key, because nothing is encrypted with it")

OPERATIONS: Mapping[str, Rows] = {
    "CancelKeyDeletion": {"KeyId": Honoured("the key is disabled then, as on AWS; EnableKey enables it")},
    "CreateAlias": {"AliasName": Honoured("`alias/aws/` is reserved"), "TargetKeyId": Honoured()},
    "CreateKey": {
        "Policy": _NO_EFFECT,
        "Description": Honoured(),
        "KeyUsage": Honoured(only=("ENCRYPT_DECRYPT",), instead="leave it out"),
        "CustomerMasterKeySpec": Honoured(only=("SYMMETRIC_DEFAULT",), instead="leave it out"),
        "KeySpec": Honoured(only=("SYMMETRIC_DEFAULT",), instead="leave it out"),
        "Origin": Honoured(only=("AWS_KMS",), instead="leave it out"),
        "CustomKeyStoreId": _NO_STORE,
        "XksKeyId": _NO_STORE,
        "BypassPolicyLockoutSafetyCheck": _NO_EFFECT,
        "Tags": Recorded("no operation shows the tags of keys"),
        "MultiRegion": Refused("there is one region; leave it out"),
    },
    "DescribeKey": {
        "KeyId": Honoured("a key that CreateKey made, or that a request for S3 or SageMaker has named"),
        "GrantTokens": _NO_GRANTS,
    },
    "DisableKey": {"KeyId": Honoured("requests to store objects with it are refused, while objects can be read")},
    "EnableKey": {"KeyId": Honoured()},
    "GetKeyPolicy": {"KeyId": Honoured(), "PolicyName": _POLICY_NAME},
    "ListAliases": {"KeyId": Honoured(), "Limit": Honoured(), "Marker": Honoured()},
    "ListKeys": {
        "Limit": Honoured(),
        "Marker": Honoured(),
        "ResourceOwners": Recorded("there is one account, whose keys are listed"),
    },
    "PutKeyPolicy": {
        "KeyId": Honoured(),
        "PolicyName": _POLICY_NAME,
        "Policy": _NO_EFFECT,
        "BypassPolicyLockoutSafetyCheck": _NO_EFFECT,
    },
    "ScheduleKeyDeletion": {
        "KeyId": Honoured(
            "requests to store objects with it are refused, while objects can be read; it is never removed, because it"
            " has no material"
        ),
        "PendingWindowInDays": Honoured("7 to 30; only shown, as DeletionDate"),
    },
}
