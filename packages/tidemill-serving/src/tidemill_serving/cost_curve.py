"""The cost of a run as a function of its rows, learned from the runs of requests, and the rows to run at once.

For one model 32 rows cost hardly more than one; for another each row costs the same, or more in larger runs, which
leave the processor's caches. The first should share runs. The second should not: its rows answer sooner, at the same
cost, if each runs alone on a core of its own.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

_SAMPLES = 3  # runs of a size before it is compared
_LOWER, _HIGHER = 0.5, 0.1  # weights of a new run in the average: first runs and other work of the machine take longer
_PREFERENCE = 1.1  # a smaller run is preferred if its rows cost at most this much more
_TOLERANCE = 1.3  # and kept while they cost at most this much more
_SETTLED = 16  # runs after which a choice is worth a line in the log
# The cost of a row must fall this much below the lowest of smaller runs for twice as many to be tried: their memory
# stays, and if the fall was noise, the requests of the larger run wait for nothing.
_SAVING = 0.9
# Up to four rows, half of that is enough: with costs that have a fixed and a proportional part, larger runs could save
# twice as much. Short runs have small tensors and noisy times: these sizes are all tried.
_FIRST_SAVING, _FIRST_ROWS, _SHORT_ROW_S = 0.95, 4, 0.005
_PROBE_EVERY = 64


@dataclass(slots=True)
class _Size:
    """Average cost of runs of about the same number of rows."""

    runs: int = 0
    row_s: float = 0.0

    def add(self, rows: int, cost_s: float) -> None:
        self.runs += 1
        row_s = cost_s / max(rows, 1)
        if self.runs <= _SAMPLES:
            self.row_s = row_s if self.runs == 1 else min(self.row_s, row_s)
        else:
            self.row_s += (_LOWER if row_s < self.row_s else _HIGHER) * (row_s - self.row_s)


class CostCurve:
    """Averages the costs of runs by their rows, in powers of two, and chooses the rows of the next run.

    Args:
        max_rows: Maximum rows of a run.
    """

    def __init__(self, *, max_rows: int) -> None:
        self._max_rows = max_rows
        self._sizes: dict[int, _Size] = {}
        self._choice = 1
        self._kept = self._reported = 0
        self._choices = 0
        self._is_known = False

    @property
    def choice(self) -> int:
        """Rows that are run at once if enough wait."""
        return self._choice

    @property
    def row_s(self) -> Mapping[int, float]:
        """Average cost of a row in seconds, by the rows of the run."""
        return {rows: size.row_s for rows, size in sorted(self._sizes.items())}

    def add(self, rows: int, cost_s: float) -> bool:
        """Record a run; return whether the choice is new and has lasted for some runs.

        Args:
            rows: Rows of the run.
            cost_s: Time that the run took, in seconds.
        """
        size = self._sizes.setdefault(_power(rows), _Size())
        size.add(rows, cost_s)
        self._is_known = self._is_known or size.runs >= _SAMPLES
        known = self._known(self._max_rows)
        if known:
            best_s = min(known.values())
            smallest = next(size for size, row_s in known.items() if row_s <= best_s * _PREFERENCE)
            if smallest < self._choice or known.get(self._choice, math.inf) > best_s * _TOLERANCE:
                self._choice, self._kept = smallest, 0
        self._kept += 1
        if self._kept < _SETTLED or self._choice == self._reported:
            return False
        self._reported = self._choice
        return True

    @property
    def is_known(self) -> bool:
        """Whether there were enough runs of a size: the first ones can take much longer than all others."""
        return self._is_known

    def cost_s(self, rows: int) -> float | None:
        """Return the expected cost of a run in seconds, from runs of the nearest size; None before the first run.

        Sizes with enough runs are preferred.
        """
        if not self._sizes:
            return None
        power = _power(rows)
        size = self._sizes.get(power)
        if size is None or (self._is_known and size.runs < _SAMPLES):
            sizes = [each for each in self._sizes if self._sizes[each].runs >= _SAMPLES] or self._sizes
            size = self._sizes[min(sizes, key=lambda each: abs(each.bit_length() - power.bit_length()))]
        return size.row_s * rows

    def rows_for(self, waiting: int) -> int:
        """Return the maximum rows of the next run. Sizes without enough runs are tried when enough rows wait.

        Args:
            waiting: Rows that wait, at least 1.
        """
        self._choices += 1
        known = self._known(waiting)
        if not known:
            return 1
        largest = max(known)
        double = 2 * largest
        smaller_s = min((row_s for rows, row_s in known.items() if rows < largest), default=0.0)
        improves = largest == 1 or known[largest] <= smaller_s * _SAVING
        if largest < _FIRST_ROWS:
            improves = improves or known[largest] <= max(smaller_s * _FIRST_SAVING, _SHORT_ROW_S)
        if double <= min(waiting, self._max_rows) and self._is_unknown(double) and improves:
            return double
        rows = self._choice if self._choice <= waiting else _smallest(known)
        if not self._choices % _PROBE_EVERY:  # costs change: look at the neighbors once in a while
            rows = _probe(rows, up=bool(self._choices // _PROBE_EVERY % 2), most=min(waiting, self._max_rows))
        return min(waiting, self._max_rows) if rows == largest and improves else rows

    def gains_by(self, waiting: int) -> bool:
        """Return whether more rows than these would make each of them cheaper."""
        return self._choice > 1 and waiting < self._choice

    def _known(self, most: int) -> dict[int, float]:
        return {
            rows: size.row_s for rows, size in sorted(self._sizes.items()) if rows <= most and size.runs >= _SAMPLES
        }

    def _is_unknown(self, rows: int) -> bool:
        size = self._sizes.get(rows)
        return size is None or size.runs < _SAMPLES


def _power(rows: int) -> int:
    """Return the largest power of two that is at most this number."""
    return 1 << (max(rows, 1).bit_length() - 1)


def _smallest(known: Mapping[int, float]) -> int:
    best_s = min(known.values())
    return next(rows for rows, row_s in known.items() if row_s <= best_s * _PREFERENCE)


def _probe(rows: int, *, up: bool, most: int) -> int:
    return min(2 * rows, most) if up else max(rows // 2, 1)
