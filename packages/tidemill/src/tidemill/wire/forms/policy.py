"""The policy of a presigned POST: who signed it, until when it is valid, and which fields it allows."""

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidemill.errors import AwsError

_NEED_NO_CONDITION = frozenset({"policy", "x-amz-signature", "signature", "awsaccesskeyid", "file"})
_SIZE = re.compile(r"[0-9]{1,18}")
_IGNORED = "x-ignore-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy document.

    Attributes:
        expiration: Time after which the form is refused.
        conditions: ``(operator, field in lower case, value)`` each; the operator is ``eq`` or ``starts-with``.
        min_bytes: Minimum size of the file.
        max_bytes: Maximum size of the file; None without ``content-length-range``.
    """

    expiration: datetime
    conditions: tuple[tuple[str, str, str], ...]
    min_bytes: int = 0
    max_bytes: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Policy":
        """Parse the field ``policy``, base64 of JSON.

        Raises:
            AwsError: InvalidPolicyDocument (400).
        """
        try:
            document = json.loads(base64.b64decode(text, validate=True))
            expiration = datetime.fromisoformat(document["expiration"])
            given = document["conditions"]
        except (binascii.Error, ValueError, KeyError, TypeError, RecursionError) as error:
            raise _invalid(f"expected base64 of a JSON object with expiration and conditions ({error})") from error
        if expiration.tzinfo is None or not isinstance(given, list):
            raise _invalid("expiration needs a time zone, e.g. 2026-11-21T10:00:00Z, and conditions are a list")
        conditions: list[tuple[str, str, str]] = []
        ranges: list[tuple[int, int]] = []
        for each in given:
            if isinstance(each, dict):
                conditions += [("eq", name.lower(), _text(value, each)) for name, value in each.items()]
            elif isinstance(each, list) and len(each) == 3:
                _add(each, conditions, ranges)
            else:
                raise _invalid(f"{json.dumps(each)[:200]} is no condition")
        return cls(
            expiration=expiration,
            conditions=tuple(conditions),
            min_bytes=max((low for low, _ in ranges), default=0),
            max_bytes=min((high for _, high in ranges), default=None),
        )

    def check(self, fields: Mapping[str, str], *, bucket: str, key: str, now_ms: int) -> None:
        """Refuse a form that the policy does not allow.

        Args:
            fields: Values by name in lower case.
            bucket: Bucket of the URL.
            key: The key, with the name of the file in place of ``${filename}``.
            now_ms: Wall time.

        Raises:
            AwsError: AccessDenied (403).
        """
        if now_ms / 1000 > self.expiration.timestamp():
            raise _denied("Policy expired.")
        values = {**fields, "bucket": bucket, "key": key}
        for operator, name, wanted in self.conditions:
            value = values.get(name, "")
            met = value == wanted if operator == "eq" else value.startswith(wanted)
            # The signer may have written ${filename} into the condition.
            if not met and not (operator == "eq" and name == "key" and fields.get("key") == wanted):
                raise _denied(f"Policy Condition failed: {json.dumps([operator, f'${name}', wanted])}")
        allowed = {name for _, name, _ in self.conditions} | _NEED_NO_CONDITION
        # As on AWS, the bucket needs a condition although it is no field: else the form would be one for every bucket.
        extra = [name for name in ("bucket", *fields) if name not in allowed and not name.startswith(_IGNORED)]
        if extra:
            raise _denied(f"Extra input fields: {', '.join(extra)[:256]}")


def _add(each: Sequence[Any], conditions: list[tuple[str, str, str]], ranges: list[tuple[int, int]]) -> None:
    operator, first, second = str(each[0]).lower(), each[1], each[2]
    if operator == "content-length-range":
        if not all(_SIZE.fullmatch(str(size)) for size in each[1:]):
            raise _invalid(f"{json.dumps(each)[:200]}: expected two numbers of bytes")
        ranges.append((int(first), int(second)))
    elif operator in ("eq", "starts-with") and isinstance(first, str) and first.startswith("$"):
        conditions.append((operator, first[1:].lower(), _text(second, each)))
    else:
        raise _invalid(f"{json.dumps(each)[:200]} is no condition; there are eq, starts-with and content-length-range")


def _text(value: Any, condition: Any) -> str:
    if not isinstance(value, str):
        raise _invalid(f"{json.dumps(condition)[:200]}: expected a text as value")
    return value


def _invalid(why: str) -> AwsError:
    return AwsError(f"Invalid Policy: {why}", code="InvalidPolicyDocument")


def _denied(why: str) -> AwsError:
    return AwsError(f"Invalid according to Policy: {why}", code="AccessDenied")
