"""The kinds of rows in the compatibility table: what becomes of one member, hyperparameter or argument.

A row says one of four things: the service does what is asked (`Honoured`), it accepts and shows the value without
acting on it (`Recorded`), it refuses the value with a reason (`Refused`), or an SDK argument is sent as a request
member, whose own row decides (`Sent`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Honoured", "Recorded", "Refused", "Row", "Rows", "Sent"]


@dataclass(frozen=True, slots=True)
class Honoured:
    """The service does what the member asks.

    A structure that is honoured needs rows for its members.

    Attributes:
        note: What differs from SageMaker, and which values are refused by other code.
        only: The values on offer, if not all that the model allows; any other value is refused.
        instead: What to do instead of sending a value that is not in ``only``.
    """

    note: str = ""
    only: tuple[Any, ...] = ()
    instead: str = ""

    def refusal(self, value: Any) -> str | None:
        """Return why ``value`` is refused, or None when it is accepted."""
        if not self.only or value in self.only:
            return None
        offered = f"this version offers {', '.join(str(each) for each in self.only)}"
        return f"{offered}; {self.instead}" if self.instead else offered


@dataclass(frozen=True, slots=True)
class Recorded:
    """Accepted, shown again where SageMaker shows it, and without effect. Covers the members of a structure.

    Attributes:
        note: Why it has no effect.
    """

    note: str

    def refusal(self, value: Any) -> str | None:
        """Return None: every value is accepted."""
        return None


@dataclass(frozen=True, slots=True)
class Refused:
    """Refused when it asks for something. Covers the members of a structure.

    ``False``, an empty text, an empty list and an empty structure ask for nothing, and clients send them unasked.

    Attributes:
        reason: Why, and what to do instead; the end of the error message.
        harmless: Further values that ask for nothing, e.g. the default that clients send.
        note: What becomes of a harmless value.
        code: AWS error code; empty for the service's code for invalid members.
        status: HTTP status of the error.
    """

    reason: str
    harmless: tuple[Any, ...] = ()
    note: str = ""
    code: str = ""
    status: int = 400

    def refusal(self, value: Any) -> str | None:
        """Return why ``value`` is refused, or None when it asks for nothing."""
        empty = value is None or value is False or (not isinstance(value, int | float) and not value)
        return None if empty or value in self.harmless else self.reason


@dataclass(frozen=True, slots=True)
class Sent:
    """An argument of the SDK that is sent as a member of a request; the member's row decides.

    Attributes:
        member: Path of the member, e.g. ``OutputDataConfig.KmsKeyId``.
        operation: Operation of the service ``sagemaker`` unless ``service`` names another.
        service: botocore's name of the service.
    """

    member: str
    operation: str = "CreateTrainingJob"
    service: str = "sagemaker"


Row = Honoured | Recorded | Refused
Rows = Mapping[str, Row]
"""Rows by the path of the member, e.g. ``InputDataConfig[].ChannelName``."""
