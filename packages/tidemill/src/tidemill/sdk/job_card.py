"""The card of a training job in a notebook: state, phases, curves, hyperparameters, and why it failed.

HTML and SVG without a script, so that a notebook shows it without trust. Names, metrics and failures come from users
and their scripts: all of it is text, escaped, without control characters and marks that turn the direction of text.
"""

import html
import importlib
import math
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemill.core import hyperparameters as hps
from tidemill.errors import printable
from tidemill.sdk.markup import table

_NAMESPACE = "/aws/sagemaker/TrainingJobs"
_TERMINAL = ("Completed", "Failed", "Stopped")
_MAX_CURVES = 4
_MAX_METRICS = 40
_MAX_POINTS = 200
_MAX_FAILURE_CHARS = 2000
_WIDTH, _HEIGHT = 280, 80
_PERIODS_S = (1, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400)  # CloudWatch's allow no others below a minute
_UPDATE_EVERY_S = 2.0
_TURNING = re.compile(r"[\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_SECRET = re.compile(r"(?i)password|secret|token|api_?key|credential")
_COLORS = {"Completed": "#1a7f37", "Failed": "#cf222e", "Stopped": "#9a6700"}

Point = tuple[datetime, float]


def card(description: Mapping[str, Any], curves: Mapping[str, Sequence[Point]], *, now: datetime) -> str:
    """Return the HTML of a job's card.

    Args:
        description: Answer of DescribeTrainingJob.
        curves: Points by metric, in order of time.
        now: Current time, for the phase that lasts.
    """
    status = description["TrainingJobStatus"]
    members = {
        "status": status,
        "phase": description.get("SecondaryStatus"),
        "instances": _instances(description.get("ResourceConfig", {})),
        "took": _took(description, now),
        "model": description.get("ModelArtifacts", {}).get("S3ModelArtifacts"),
    }
    parts = [
        table(
            _plain(f"Training job {description['TrainingJobName']}"), {k: _plain(v) for k, v in members.items() if v}
        ),
        _phases(description, now),
        *(_curve(name, points) for name, points in list(curves.items())[:_MAX_CURVES] if points),
        _hyperparameters(description.get("HyperParameters", {})),
        _failure(description.get("FailureReason", "")),
    ]
    color = _COLORS.get(status, "#0969da")
    return f"<div style='border-left:4px solid {color};padding-left:8px'>{''.join(parts)}</div>"


def metric_points(session: Any, description: Mapping[str, Any], *, most: int = _MAX_METRICS) -> dict[str, list[Point]]:
    """Return the points of a job's metrics so far, at most 200 of each.

    Args:
        session: A `Session` of the SDK.
        description: Answer of DescribeTrainingJob.
        most: Number of metrics, the first of the definitions. Default: all that SageMaker allows.
    """
    defined = description.get("AlgorithmSpecification", {}).get("MetricDefinitions", ())
    begin = description.get("TrainingStartTime")
    if not defined or begin is None:
        return {}
    end = description.get("TrainingEndTime") or datetime.now(UTC)
    least_s = 60 if session.is_aws else 1
    wanted_s = (end - begin).total_seconds() / _MAX_POINTS
    period_s = next((each for each in _PERIODS_S if each >= max(wanted_s, least_s)), _PERIODS_S[-1])
    dimensions = [{"Name": "TrainingJobName", "Value": description["TrainingJobName"]}]
    queries = [
        {
            "Id": f"m{number}",
            "Label": each["Name"],
            "MetricStat": {
                "Metric": {"Namespace": _NAMESPACE, "MetricName": each["Name"], "Dimensions": dimensions},
                "Period": period_s,
                "Stat": "Average",
            },
        }
        for number, each in enumerate(defined[:most])
    ]
    client = session.boto_session.client("cloudwatch", region_name=session.boto_region_name)
    answer = client.get_metric_data(
        MetricDataQueries=queries,
        StartTime=begin.replace(microsecond=0),
        EndTime=end + timedelta(seconds=2 * period_s),
        ScanBy="TimestampAscending",
    )
    return {
        each["Label"]: list(zip(each["Timestamps"], each["Values"], strict=True))
        for each in answer["MetricDataResults"]
    }


class LiveCard:
    """A card in the output of a notebook's cell, which is redrawn while the job runs.

    Args:
        session: A `Session` of the SDK.
        clock: Monotonic time in seconds.
    """

    def __init__(self, session: Any, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._session = session
        self._clock = clock
        self._handle: Any = None
        self._state: tuple[Any, ...] = ()
        self._next_s = clock()

    @classmethod
    def here(cls, session: Any) -> "LiveCard | None":
        """Return a card if this process is the kernel of a notebook, else None. IPython is not imported.

        Args:
            session: A `Session` of the SDK.
        """
        ipython = sys.modules.get("IPython")
        shell = ipython.get_ipython() if ipython is not None else None
        return cls(session) if hasattr(shell, "kernel") else None

    def show(self, description: Mapping[str, Any]) -> None:
        """Draw the card anew if the job's state has changed, or after two seconds.

        Args:
            description: Answer of DescribeTrainingJob.
        """
        state = (description["TrainingJobStatus"], len(description.get("SecondaryStatusTransitions", ())))
        now_s = self._clock()
        if state == self._state and (now_s < self._next_s or state[0] in _TERMINAL):
            return
        self._state, self._next_s = state, now_s + _UPDATE_EVERY_S
        display: Any = importlib.import_module("IPython.display")
        shown = display.HTML(html_of(self._session, description))
        if self._handle is None:
            self._handle = display.display(shown, display_id=True)
        else:
            self._handle.update(shown)


def html_of(session: Any, description: Mapping[str, Any]) -> str:
    """Return the card of a job as it is now; without curves if its metrics cannot be read.

    Args:
        session: A `Session` of the SDK.
        description: Answer of DescribeTrainingJob.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        curves = metric_points(session, description, most=_MAX_CURVES)
    except (BotoCoreError, ClientError):
        return card(description, {}, now=datetime.now(UTC))
    return card(description, curves, now=datetime.now(UTC))


def _plain(value: Any) -> str:
    """Return text without control characters; marks that turn the direction of text are visible."""
    return _TURNING.sub("\ufffd", printable(str(value)))


def _escaped(value: Any, *, most: int = 200) -> str:
    text = _plain(value)
    return html.escape(text if len(text) <= most else f"{text[:most]}...")


def _instances(resources: Mapping[str, Any]) -> str:
    groups = resources.get("InstanceGroups") or [resources]
    return ", ".join(f"{each['InstanceCount']} x {each['InstanceType']}" for each in groups if "InstanceCount" in each)


def _took(description: Mapping[str, Any], now: datetime) -> str:
    begin = description.get("CreationTime")
    return "" if begin is None else _seconds((description.get("TrainingEndTime") or now) - begin)


def _seconds(span: timedelta) -> str:
    seconds = max(0, int(span.total_seconds()))
    minutes, rest = divmod(seconds, 60)
    return f"{minutes // 60}h {minutes % 60}m" if minutes >= 60 else f"{minutes}m {rest}s" if minutes else f"{rest}s"


def _phases(description: Mapping[str, Any], now: datetime) -> str:
    """Return the phases as a bar, each as wide as it lasted, and their names below."""
    found = [
        (each["Status"], each["StartTime"], each.get("EndTime") or now)
        for each in description.get("SecondaryStatusTransitions", ())
    ]
    lasted = [(name, max((end - begin).total_seconds(), 0.0)) for name, begin, end in found]
    total = sum(seconds for _, seconds in lasted)
    if not total:
        return ""
    left = 0.0
    bars: list[str] = []
    for number, (name, seconds) in enumerate(lasted):
        width = _WIDTH * seconds / total
        color = _COLORS.get(name, ("#6cb6ff", "#316dca")[number % 2])
        bars.append(f"<rect x='{left:.1f}' y='0' width='{max(width, 0.5):.1f}' height='8' fill='{color}'/>")
        left += width
    words = ", ".join(f"{_escaped(name)} {_seconds(timedelta(seconds=seconds))}" for name, seconds in lasted)
    return (
        f"<svg role='img' aria-label='phases' width='{_WIDTH}' height='8' style='display:block'>{''.join(bars)}</svg>"
        f"<small>{words}</small><br/>"
    )


def _curve(name: str, points: Sequence[Point]) -> str:
    finite = [(at.timestamp(), value) for at, value in points if math.isfinite(value)]
    if not finite:
        return ""
    begin, end = finite[0][0], finite[-1][0]
    low, high = min(value for _, value in finite), max(value for _, value in finite)
    across, up = (end - begin) or 1.0, (high - low) or 1.0
    places = " ".join(
        f"{_WIDTH * (at - begin) / across:.1f},{4 + (_HEIGHT - 8) * (1 - (value - low) / up):.1f}"
        for at, value in finite
    )
    label = f"{_escaped(name, most=60)} {finite[-1][1]:.6g}"
    # A single point is a line of no length, which only round ends make visible.
    return (
        f"<figure style='display:inline-block;margin:4px 8px 4px 0'><figcaption><small>{label}"
        f" (min {low:.6g}, max {high:.6g})</small></figcaption>"
        f"<svg role='img' aria-label='{label}' width='{_WIDTH}' height='{_HEIGHT}'>"
        f"<polyline points='{places} {places.rpartition(' ')[2]}' fill='none' stroke='#316dca' stroke-width='2'"
        " stroke-linecap='round'/></svg></figure>"
    )


def _hyperparameters(values: Mapping[str, str]) -> str:
    """Return the script's own hyperparameters. What is called like a secret is not shown: notebooks are passed on."""
    own = {
        _plain(name): "(hidden)" if _SECRET.search(name) else _plain(value)
        for name, value in hps.decode(values).items()
        if not hps.is_reserved(name) and name != "model_dir"
    }
    return table("Hyperparameters", own) if own else ""


def _failure(reason: str) -> str:
    if not reason:
        return ""
    return f"<pre style='color:#cf222e;white-space:pre-wrap'>{_escaped(reason, most=_MAX_FAILURE_CHARS)}</pre>"
