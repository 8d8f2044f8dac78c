"""How a signature uses the processors: the rows of its runs, the session that runs them, and which requests may wait.

Everything is learned from the runs of requests. What is chosen is logged, and shown by ``/monitoring/scheduling``.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from tidemill_serving.admission import Admission, refusal
from tidemill_serving.batch_threads import BatchThreads
from tidemill_serving.cost_curve import CostCurve
from tidemill_serving.engine import LoadedModel
from tidemill_serving.engine.twin import Twin
from tidemill_serving.errors import RequestError

_TWIN_RUNS = 16  # runs beside others after which a second session is loaded
_TWIN_RUN_S = 0.001  # for shorter runs it would make no difference
_ROWS_BEFORE_TWIN = (
    4  # what larger runs cost without it says nothing about later ones, but TensorFlow keeps their memory
)
_WIDE_ADVANTAGE = 0.8  # required ratio of times: splitting operations takes more processor time
_PROBE_EVERY = 64  # runs alone, one of which takes the other way, since times change
_STRETCH_WEIGHT = 0.1
_US = 1e6
_LATENCIES = 512  # last requests whose times are shown
Report = Callable[[str, Mapping[str, object]], None]
_Key = tuple[int, bool]  # size of a row in bytes, as a power of two, and whether the run is narrow


def report_no_choice(name: str, fields: Mapping[str, object]) -> None:
    """Ignore what was chosen."""


class RunSchedule:
    """Learns from the runs of a signature on threads, and chooses the next ones. Used on the event loop.

    Args:
        threads: Run the signature.
        max_rows: Maximum rows of a run.
        twin: The second session of the model; None if there can be none.
        only_narrow: The model's only session runs operations on the calling thread.
        report: Called with the name of an event and its fields when a choice changes.
    """

    def __init__(
        self,
        threads: BatchThreads,
        *,
        max_rows: int,
        twin: Twin | None = None,
        only_narrow: bool = False,
        report: Report = report_no_choice,
    ) -> None:
        self._threads = threads
        self._max_rows = max_rows
        self._twin = twin
        self._only_narrow = only_narrow
        self._report = report
        self._curves: dict[_Key, CostCurve] = {}
        self._stretch = 1.0
        self._runs_beside_others = self._runs_alone = 0
        self._latencies_s: deque[float] = deque(maxlen=_LATENCIES)
        self.admission = Admission(self._on_overload, longest_wait_s=threads.longest_wait_s)

    def is_narrow(self, kind: int, rows: int, *, alone: bool) -> bool:
        """Return whether to run on the calling thread alone.

        Args:
            kind: Size of a row in bytes, as a power of two.
            rows: Rows of the run.
            alone: Whether there is no other request.
        """
        if self._only_narrow or self._twin is None or self._twin.model is None:
            return self._only_narrow
        if not alone:
            return True
        wide_s, narrow_s = self._cost_s(kind, rows, narrow=False), self._cost_s(kind, rows, narrow=True)
        is_narrow_better = bool(wide_s and narrow_s and wide_s > narrow_s * _WIDE_ADVANTAGE)
        return is_narrow_better is not (self._runs_alone % _PROBE_EVERY == _PROBE_EVERY - 1)

    def narrow_model(self) -> LoadedModel | None:
        """Return the second session; None if it is not loaded."""
        return None if self._twin is None else self._twin.model

    def rows_for(self, kind: int, waiting: int, *, narrow: bool) -> int:
        """Return the maximum rows of the next run, given the rows that wait."""
        rows = self._curve(kind, narrow=narrow).rows_for(waiting)
        is_twin_expected = self._twin is not None and self._twin.is_expected and not narrow
        is_long = (self._cost_s(kind, 1, narrow=narrow) or 0.0) > _TWIN_RUN_S
        return min(rows, _ROWS_BEFORE_TWIN) if is_twin_expected and is_long else rows

    def waits_for_more(self, kind: int, waiting: int, *, narrow: bool) -> bool:
        """Return whether rows that wait while others of the signature run had better share the next run with more."""
        return self._curve(kind, narrow=narrow).gains_by(waiting)

    def expected_s(self, kind: int, rows: int, *, narrow: bool) -> float:
        """Return the expected duration of a run in seconds; 0 before the first one."""
        return (self._cost_s(kind, rows, narrow=narrow) or 0.0) * (self._stretch if narrow else 1.0)

    def refusal(
        self, kind: int, rows: int, *, queued: int, queued_rows: Mapping[int, int], is_read: bool = True
    ) -> RequestError | None:
        """Count a request that arrives, and return the error if it may not wait.

        Args:
            kind: Size of its rows in bytes, as a power of two.
            rows: Its rows.
            queued: Number of waiting requests of the signature.
            queued_rows: Their rows, by kind.
            is_read: As for `Admission.admits`.
        """
        wait_s, run_s, alone_s = self._times(kind, rows, queued_rows)
        if self.admission.admits(wait_s=wait_s, run_s=run_s, alone_s=alone_s, queued=queued, is_read=is_read):
            return None
        return refusal(wait_s)

    def is_late(self, kind: int, rows: int, *, waited_s: float, queued_rows: Mapping[int, int]) -> bool:
        """Return whether a request that waits already would be answered too late during an overload."""
        wait_s, run_s, alone_s = self._times(kind, rows, queued_rows)
        return not self.admission.in_time(waited_s + wait_s + run_s, alone_s=alone_s)

    def answered(self, latencies_s: Sequence[float]) -> None:
        """Record requests that were answered.

        Args:
            latencies_s: Time in seconds from the arrival of each request to its outputs.
        """
        self._latencies_s.extend(latencies_s)
        self.admission.answered(len(latencies_s))

    def learn(self, kind: int, rows: int, *, elapsed_s: float, cost_s: float, narrow: bool, alone: bool) -> None:
        """Record a run.

        Args:
            kind: Size of a row in bytes, as a power of two.
            rows: Rows of the run.
            elapsed_s: Its duration in seconds.
            cost_s: Processor time in seconds of a narrow run; the duration of another one.
            narrow: Whether it used the calling thread alone.
            alone: Whether there was no other request when its request arrived.
        """
        curve = self._curve(kind, narrow=narrow)
        self._runs_alone += alone
        if narrow and cost_s > 0:
            self._stretch += _STRETCH_WEIGHT * (max(1.0, elapsed_s / cost_s) - self._stretch)
        if curve.add(rows, cost_s):
            costs = " ".join(f"{each}:{row_s * _US:.0f}" for each, row_s in curve.row_s.items())
            self._report("signature.rows", {"rows": curve.choice, "us_a_row": f'"{costs}"'})
        if not narrow and not alone and self._twin is not None and cost_s > _TWIN_RUN_S:
            self._runs_beside_others += 1
            if self._runs_beside_others == _TWIN_RUNS:
                self._twin.request()

    def document(self) -> dict[str, object]:
        """Return the choices and what they are based on, for people and JSON."""
        return {
            "second_session": "none" if self._twin is None else "loaded" if self._twin.model else "not needed",
            "overloaded": self.admission.is_overloaded,
            "refused": self.admission.refused,
            "milliseconds_of_last_answers": _quantiles_ms(self._latencies_s),
            "runs": [
                {
                    "row_bytes_below": 1 << kind,
                    "threads_in_operations": "one" if narrow else "all",
                    "rows": curve.choice,
                    "microseconds_a_row": {str(rows): round(row_s * _US, 1) for rows, row_s in curve.row_s.items()},
                }
                for (kind, narrow), curve in sorted(self._curves.items())
            ],
        }

    def _times(self, kind: int, rows: int, queued_rows: Mapping[int, int]) -> tuple[float, float, float]:
        """Return the expected time until a run, the time of the run, and its time without other requests.

        All are 0 while too little is known, so that no request is refused for the first runs, which can be slow.
        """
        narrow = self.is_narrow(kind, rows, alone=False)
        run_s = self._known_s(kind, rows, narrow=narrow)
        if not run_s:
            return 0.0, 0.0, 0.0
        queued_s = 0.0
        for each, waiting in queued_rows.items():
            curve = self._curves.get((each, narrow))
            at_once = max(min(1 if curve is None else curve.choice, waiting), 1)
            queued_s += self._known_s(each, at_once, narrow=narrow) / at_once * waiting
        wait_s = self._threads.wait_s() + queued_s * self._threads.sharers / self._threads.lanes(narrow=narrow)
        known = [cost_s for each in (False, True) if (cost_s := self._cost_s(kind, rows, narrow=each)) is not None]
        return wait_s, run_s, min(known, default=run_s)

    def _known_s(self, kind: int, rows: int, *, narrow: bool) -> float:
        """Return the expected duration of a run, from rows of about the same size if there were none of this one.

        The other session tells it better than rows of another size. Returns 0 if there were too few runs of any kind.
        """
        curve = self._curves.get((kind, narrow))
        if curve is None or not curve.is_known:
            known = [key for key, each in self._curves.items() if each.is_known]
            if not known:
                return 0.0
            kind, narrow = min(known, key=lambda key: (abs(key[0] - kind), key[1] is not narrow))
        return self.expected_s(kind, rows, narrow=narrow)

    def _curve(self, kind: int, *, narrow: bool) -> CostCurve:
        curve = self._curves.get((kind, narrow))
        if curve is None:
            curve = self._curves[kind, narrow] = CostCurve(max_rows=self._max_rows)
        return curve

    def _cost_s(self, kind: int, rows: int, *, narrow: bool) -> float | None:
        curve = self._curves.get((kind, narrow))
        return None if curve is None else curve.cost_s(rows)

    def _on_overload(self, begins: bool, refused: int) -> None:
        if begins:
            self._report("signature.overloaded", {"reason": '"requests arrive faster than they are answered"'})
        else:
            self._report("signature.recovered", {"refused": refused})


def _quantiles_ms(times_s: Sequence[float]) -> dict[str, float]:
    """Return the number of times, and their median and 99th percentile in milliseconds."""
    ordered = sorted(times_s)
    shown = {f"p{part}": round(ordered[len(ordered) * part // 100] * 1e3, 1) for part in (50, 99) if ordered}
    return {"answers": len(ordered), **shown}
