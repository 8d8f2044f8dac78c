"""Alarms: kept and shown, and never evaluated, so each has the state INSUFFICIENT_DATA."""

from collections.abc import Mapping
from typing import Any

from tidemill.core.names import ACCOUNT_ID
from tidemill.services.times import when
from tidemill.store.records.base import Record

_REASON = "Unchecked: this service keeps alarms, and evaluates none"


def members_of(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a PutMetricAlarm request that DescribeAlarms shows.

    Args:
        request: Members of the request, all of which are JSON-able.
    """
    actions: dict[str, list[str]] = {"OKActions": [], "AlarmActions": [], "InsufficientDataActions": []}
    return {"ActionsEnabled": True, **actions, **{name: value for name, value in request.items() if name != "Tags"}}


def described(record: Record, *, region: str) -> dict[str, Any]:
    """Return an alarm as DescribeAlarms shows it.

    Args:
        region: Region in its ARN.
    """
    return {
        **record.document,
        "AlarmArn": f"arn:aws:cloudwatch:{region}:{ACCOUNT_ID}:alarm:{record.name}",
        "AlarmConfigurationUpdatedTimestamp": when(record.modified_ms),
        "StateValue": "INSUFFICIENT_DATA",
        "StateReason": _REASON,
        "StateUpdatedTimestamp": when(record.created_ms),
    }
