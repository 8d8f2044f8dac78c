"""Spreads the reports of instances evenly over time.

An agent sends its next report when the last one is answered. The service answers each after the same time, unless there
is news. So if the service has stalled or was away, many agents report at the same moment, and would do so again in
each later period: other requests would wait behind them. So each instance has its own time within a period, at which
its report is answered.
"""

import zlib

from tidemill.core.instances import InstanceRef

_TOO_SHORT = 0.01
"""A wait shorter than this part of the period is not worth a report: a timer may fire a moment too early."""


def wait_of_report_s(ref: InstanceRef, *, now_s: float, period_s: float) -> float:
    """Return how long the answer to a report may wait for news, in seconds: from 0 to ``period_s``.

    Args:
        now_s: Current time in seconds; its zero may be any time.
        period_s: The longest wait that the agent allows.
    """
    if period_s <= 0:
        return 0.0
    own_s = zlib.crc32(ref.mark.encode()) / 2**32 * period_s
    wait_s = (own_s - now_s) % period_s
    return wait_s if wait_s > _TOO_SHORT * period_s else period_s
