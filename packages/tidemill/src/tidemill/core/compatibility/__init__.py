"""The effect of every member of every request, of the platform's hyperparameters and of the SDK's arguments.

There is one table: the wire and the SDK refuse requests and arguments by it, `docs/compatibility.md` is generated from
it, and a test compares it with botocore's models and the SDK's signatures. Values that are refused only under a
condition (one variant, one container, a name that is taken) are refused by `tidemill.control`; the row's note says so.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from tidemill.core.compatibility import (
    experiments,
    hosting,
    identity,
    keys,
    logs,
    metrics,
    objects,
    pipelines,
    processing,
    registry,
    scaling,
    search,
    training,
    transform,
    tuning,
)
from tidemill.core.compatibility.nothing import EMPTY_LISTS, FILTERS_NOTHING
from tidemill.core.compatibility.rows import Row, Rows, Unencrypted

OPERATIONS: Mapping[str, Mapping[str, Rows]] = {
    "sagemaker": {
        **training.OPERATIONS,
        **processing.OPERATIONS,
        **transform.OPERATIONS,
        **hosting.OPERATIONS,
        **registry.OPERATIONS,
        **tuning.OPERATIONS,
        **experiments.OPERATIONS,
        **search.OPERATIONS,
        **pipelines.OPERATIONS,
        **{operation: {} for operation in EMPTY_LISTS},
    },
    "sagemaker-metrics": experiments.METRICS_OPERATIONS,
    "sagemaker-runtime": hosting.RUNTIME_OPERATIONS,
    "logs": logs.OPERATIONS,
    "cloudwatch": metrics.OPERATIONS,
    "sts": identity.STS_OPERATIONS,
    "iam": identity.IAM_OPERATIONS,
    "kms": keys.OPERATIONS,
    "application-autoscaling": scaling.OPERATIONS,
    "s3": objects.OPERATIONS,
}
"""Rows by service (botocore's name), operation and path of the member."""

COMMON: Mapping[str, Rows] = {"s3": objects.COMMON}
"""Rows for members of that name in every operation of a service that has no row of its own for the member."""


def row_of(service: str, operation: str, member: str) -> Row | None:
    """Return the row of a member, or None. A member inside a refused or recorded one needs no row.

    Args:
        service: botocore's name of the service.
        member: Path of the member, e.g. ``InputDataConfig[].ChannelName``.
    """
    rows = OPERATIONS.get(service, {}).get(operation)
    if rows is None:
        return None
    if service == "sagemaker" and operation in EMPTY_LISTS:
        return FILTERS_NOTHING
    return rows.get(member) or COMMON.get(service, {}).get(member)


def keys_named(service: str, operation: str, request: Mapping[str, Any]) -> dict[str, str]:
    """Return the KMS keys that a request names, by the path of the member; those in lists are numbered.

    Args:
        service: botocore's name of the service.
    """
    found: dict[str, str] = {}
    for path in _key_members(service, operation):
        for number, value in enumerate(_values_at(request, path.split("."))):
            found[path.replace("[]", f"[{number}]", 1)] = value
    return found


def _values_at(value: Any, path: list[str]) -> Iterator[str]:
    """Yield the texts at a path, whose members of lists end with ``[]``."""
    if not path:
        if isinstance(value, str) and value:
            yield value
        return
    name = path[0].removesuffix("[]")
    below = value.get(name) or {}
    for each in below if path[0].endswith("[]") else (below,):
        yield from _values_at(each, path[1:])


@cache
def _key_members(service: str, operation: str) -> tuple[str, ...]:
    rows = OPERATIONS[service][operation]
    return tuple(path for path, row in rows.items() if isinstance(row, Unencrypted) and row.names_key)
