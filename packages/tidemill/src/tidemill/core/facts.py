"""What is known of every request: who sends it, when, and how. The values of the condition keys ``aws:...``."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from tidemill.core.conditions import Fact, Lack
from tidemill.core.names import ACCOUNT_ID, unique_id

_SESSION = f"arn:aws:sts::{ACCOUNT_ID}:assumed-role/"
_FLAGS = {False: ("false",), True: ("true",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSender:
    """The sender of a request.

    Attributes:
        arn: ARN of a user, or of a session of a role.
        now_ms: The time, in milliseconds since the epoch.
        region: The region that answers.
        secure: Whether it came by TLS, or over no network at all.
        address: The client's IP address, or why there is none: None for a request of the service itself.
        internal: Whether the service sends it, for a job or a step of a pipeline.
        agent: The header User-Agent; may be empty.
        referer: The header Referer; may be empty.
    """

    arn: str
    now_ms: int
    region: str
    secure: bool = False
    address: Fact = Lack.UNDETERMINED
    internal: bool = False
    agent: str = ""
    referer: str = ""

    def fact(self, key: str) -> Fact:
        """Return the values of a condition key; None for a key that is not about the sender.

        Args:
            key: Name of the key in lower case.
        """
        match key:
            case "aws:currenttime":
                return (datetime.fromtimestamp(self.now_ms / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),)
            case "aws:epochtime":
                return (str(self.now_ms // 1000),)
            case "aws:requestedregion":
                return (self.region,)
            case "aws:securetransport":
                return _FLAGS[self.secure]
            case "aws:sourceip":
                return self.address
            case "aws:viaawsservice":
                return _FLAGS[self.internal]
            case "aws:useragent":
                return (self.agent,) if self.agent else None
            case "aws:referer":
                return (self.referer,) if self.referer else None
            case _:
                return values_of_principal(self.arn).get(key)


def values_of_principal(arn: str) -> Mapping[str, tuple[str, ...]]:
    """Return the values of the condition keys about a user or a session of a role, by key in lower case.

    Args:
        arn: ARN of the user or the session.
    """
    common = {
        "aws:principalaccount": (ACCOUNT_ID,),
        "aws:resourceaccount": (ACCOUNT_ID,),
        "aws:principalisawsservice": ("false",),
    }
    if arn.startswith(_SESSION):
        role, _, session = arn.removeprefix(_SESSION).rpartition("/")
        return {
            **common,
            "aws:principalarn": (f"arn:aws:iam::{ACCOUNT_ID}:role/{role}",),
            "aws:principaltype": ("AssumedRole",),
            "aws:userid": (f"{unique_id('AROA', role)}:{session}",),
        }
    name = arn.partition(":user/")[2]
    return {
        **common,
        "aws:principalarn": (arn,),
        "aws:principaltype": ("User",),
        "aws:username": (name,),
        "aws:userid": (unique_id("AIDA", name),),
    }
