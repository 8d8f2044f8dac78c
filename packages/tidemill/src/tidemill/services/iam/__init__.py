"""AWS Identity and Access Management: GetRole.

There are no roles to manage here: any well-formed name is a role that SageMaker may assume, which is all that
AWS's SDKs ask when they turn a role's name into its ARN.
"""

import json
import urllib.parse
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tidemill.core.names import role_arn
from tidemill.wire.exchange import Context, Handler

__all__ = ["IamService"]

_TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


class IamService:
    """Answers any role name with a well-formed role."""

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {"GetRole": self.get_role}

    async def get_role(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        name = request["RoleName"]
        return {
            "Role": {
                "Path": "/",
                "RoleName": name,
                "RoleId": "AROA" + name.upper().replace("-", "").replace("_", "")[:12].ljust(12, "0") + "TIDE",
                "Arn": role_arn(name),
                "CreateDate": datetime(2020, 1, 1, tzinfo=UTC),
                "AssumeRolePolicyDocument": urllib.parse.quote(json.dumps(_TRUST), safe=""),
                "MaxSessionDuration": 3600,
            }
        }
