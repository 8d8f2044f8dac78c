"""The kinds of rows in the compatibility table: the effect of one member, hyperparameter or argument.

A row says one of four things: the service does what is requested (`Honored`); it accepts and shows the value without
effect (`Recorded`); it refuses the value with a reason (`Refused`); or an argument of the SDK is sent as a request
member, whose own row decides (`Sent`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Honored:
    """The service does what the member requests.

    A structure that is honored needs rows for its members.

    Attributes:
        note: Differences from SageMaker, and values that other code refuses.
        only: The supported values, if not all that the model allows; any other value is refused.
        instead: What to do instead of sending a value that is not in ``only``.
        in_part: Whether the service does only what ``note`` says.
    """

    note: str = ""
    only: tuple[Any, ...] = ()
    instead: str = ""
    in_part: bool = False

    def refusal(self, value: Any) -> str | None:
        """Return why a value is refused, or None if it is accepted.

        Args:
            value: The value of the member.
        """
        if not self.only or value in self.only:
            return None
        offered = f"this version offers {', '.join(str(each) for each in self.only)}"
        return f"{offered}; {self.instead}" if self.instead else offered


@dataclass(frozen=True, slots=True)
class Recorded:
    """Accepted without effect, and shown where SageMaker shows it. Applies to the members of a structure, too.

    Attributes:
        note: Why it has no effect.
    """

    note: str

    def refusal(self, value: Any) -> str | None:
        """Return None: every value is accepted.

        Args:
            value: The value of the member.
        """
        return None


@dataclass(frozen=True, slots=True)
class Refused:
    """Refused if it requests something. Applies to the members of a structure, too.

    ``False``, an empty text, an empty list and an empty structure request nothing; clients send them by default.

    Attributes:
        reason: Why, and what to do instead; the end of the error message.
        harmless: Further values that request nothing, e.g. a default that clients send.
        note: The effect of a harmless value.
        code: AWS error code; empty for the service's code for invalid members.
    """

    reason: str
    harmless: tuple[Any, ...] = ()
    note: str = ""
    code: str = ""

    def refusal(self, value: Any) -> str | None:
        """Return why a value is refused, or None if it requests nothing.

        Args:
            value: The value of the member.
        """
        empty = value is None or value is False or (not isinstance(value, int | float) and not value)
        return None if empty or value in self.harmless else self.reason


@dataclass(frozen=True, slots=True)
class Unencrypted(Recorded):
    """A request to encrypt stored data. It is recorded and shown, but tidemill encrypts nothing.

    Attributes:
        names_key: Whether the value names a KMS key, which the service `kms` then describes.
        harmless: Values that are accepted even if the setting ``encryption`` is ``refuse``.
    """

    note: str = "tidemill encrypts nothing; refused if the setting `encryption` is `refuse`"
    names_key: bool = False
    harmless: tuple[Any, ...] = ()

    @property
    def strict(self) -> Refused:
        """The row if the setting ``encryption`` is ``refuse``."""
        return Refused(
            "tidemill encrypts nothing, and its setting encryption is 'refuse'; leave it out, or keep the state"
            " directory on an encrypted disk",
            harmless=self.harmless,
        )


@dataclass(frozen=True, slots=True)
class Sent:
    """An argument of the SDK that is sent as a member of a request; the member's row decides.

    Attributes:
        member: Path of the member, e.g. ``OutputDataConfig.KmsKeyId``.
        operation: Operation of ``service``.
        service: botocore's name of the service. Default: ``sagemaker``.
    """

    member: str
    operation: str = "CreateTrainingJob"
    service: str = "sagemaker"


Row = Honored | Recorded | Refused
Rows = Mapping[str, Row]
"""Rows by the path of the member, e.g. ``InputDataConfig[].ChannelName``."""


def honored(*members: str) -> Rows:
    """Return the rows of members that mean the same as on AWS.

    Args:
        *members: Paths, e.g. ``Tags[].Key``.
    """
    return same(Honored(), *members)


def same(row: Row, *members: str) -> Rows:
    """Return the rows of members that are all handled as ``row`` says.

    Args:
        *members: Paths, e.g. ``Tags[].Key``.
    """
    return dict.fromkeys(members, row)


TAGS = honored("Tags", "Tags[].Key", "Tags[].Value")
JOB_LIST = honored(
    *("NextToken", "MaxResults", "CreationTimeAfter", "CreationTimeBefore", "LastModifiedTimeAfter"),
    *("LastModifiedTimeBefore", "NameContains", "StatusEquals", "SortBy", "SortOrder"),
)
"""What lists of jobs of all kinds select and sort by."""
