"""Metrics in Prometheus's text format: histograms, families, and their text.

The format is version 0.0.4 of Prometheus's documentation on exposition formats. Counts are kept by who counts;
families are made only when a monitor asks for them.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

DURATIONS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Bounds of the durations of requests, from a look-up of a record to the longest answer of a model, in seconds."""


class Histogram:
    """Counts of observed values by their upper bounds, and their sum. One thread observes; any may read.

    Args:
        bounds: Inclusive upper bounds, ascending, without infinity.
        counts: Number of values that were observed before, by bound, and of greater ones. Default: none.
        total: Their sum.
    """

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(
        self, bounds: Sequence[float] = DURATIONS_S, *, counts: Sequence[int] | None = None, total: float = 0.0
    ) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1) if counts is None else list(counts)
        self._sum = total

    @property
    def count(self) -> int:
        """Number of observed values."""
        return sum(self._counts)

    def observe(self, value: float) -> None:
        """Count a value.

        Args:
            value: In the unit of the bounds.
        """
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def add(self, other: "Histogram") -> None:
        """Add the counts of another histogram with the same bounds.

        Args:
            other: The histogram.
        """
        self._counts = [mine + theirs for mine, theirs in zip(self._counts, other._counts, strict=True)]
        self._sum += other._sum

    def samples(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """Yield the suffix of the name, the further labels and the value of each of its samples."""
        total = 0
        counts = list(self._counts)  # so that the last bucket and the count are equal while another thread observes
        for bound, count in zip((*self._bounds, math.inf), counts, strict=True):
            total += count
            yield "_bucket", {"le": _number(bound)}, total
        yield "_sum", {}, self._sum
        yield "_count", {}, total


@dataclass(frozen=True, slots=True)
class Family:
    """The samples of one metric.

    Attributes:
        name: Name of the metric; that of a counter ends in ``_total``.
        kind: Its type.
        text: What it is, in one line.
        samples: Labels and value of each sample; no two have the same labels.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    samples: Sequence[tuple[Mapping[str, str], float | Histogram]]


def exposition(families: Iterable[Family]) -> bytes:
    """Return the text of metrics in Prometheus's format.

    Args:
        families: The metrics, each name once.
    """
    lines: list[str] = []
    for family in families:
        lines.append(f"# HELP {family.name} {_escaped(family.text)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for labels, value in family.samples:
            if isinstance(value, Histogram):
                for suffix, further, number in value.samples():
                    lines.append(_sample(family.name + suffix, {**labels, **further}, number))
            else:
                lines.append(_sample(family.name, labels, value))
    # A name that is no Unicode text, which no name is that passed the checks of its request, must not hide all others.
    return "\n".join((*lines, "")).encode(errors="replace")


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    shown = ",".join(f'{label}="{_escaped(text, quote=True)}"' for label, text in labels.items())
    return f"{name}{{{shown}}} {_number(value)}" if shown else f"{name} {_number(value)}"


def _escaped(text: str, *, quote: bool = False) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quote else escaped


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)
