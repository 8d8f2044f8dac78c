"""What has changed in the store, for viewers that wait for it.

Changes are numbered from the start of the service. Each record that has changed is kept once, with the number of its
last change, so the memory is bounded by the number of records, and by `_KEPT`. A viewer that asks for changes since a
number that is not known any more, or of an earlier start, hears that anything may have changed. Every commit of the
records passes this process: with PostgreSQL, only the service that leads writes, and a service that takes the lead is a
new start for all viewers.
"""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

__all__ = ["ChangeFeed", "Changed", "Changes"]

_KEPT = 10_000
_REPORTED_MAX = 1000
_NUMBER_DIGITS = 18
_COLLECTED_S = 0.1
"""After the first change, the next ones are awaited for so long, so that a burst is one answer."""

Changed = tuple[str, str]
"""Kind and name of a record, e.g. ``("training-job", "digits")``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Changes since a token.

    Attributes:
        token: For the next call.
        changed: What has changed, most recent first.
        everything: Whether anything may have changed, because the changes since the token are not known or too many.
    """

    token: str
    changed: tuple[Changed, ...] = ()
    everything: bool = False


@dataclass(eq=False, slots=True)
class _Viewer:
    looks_at: Callable[[Changed], bool]
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class ChangeFeed:
    """Keeps what has changed, and wakes viewers. All methods are called on one event loop.

    Args:
        kinds: Kinds of records whose changes are kept.
        kept: Number of records whose last changes are kept. Default: 10,000.
        collected_s: Seconds for which further changes are collected after the first one. Default: 0.1.
    """

    def __init__(self, kinds: Collection[str], *, kept: int = _KEPT, collected_s: float = _COLLECTED_S) -> None:
        self._kinds = frozenset(kinds)
        self._kept = kept
        self._collected_s = collected_s
        self._start = secrets.token_hex(8)
        self._number = 0
        self._forgotten = 0
        self._last: OrderedDict[Changed, int] = OrderedDict()
        self._viewers: set[_Viewer] = set()
        self._closed = False

    def note(self, changed: Collection[Changed]) -> None:
        """Record changes that were committed, and wake the viewers that look at them.

        Args:
            changed: Kinds and names; kinds that are not kept are ignored.
        """
        news = [each for each in changed if each[0] in self._kinds]
        for each in news:
            self._number += 1
            self._last[each] = self._number
            self._last.move_to_end(each)
        while len(self._last) > self._kept:
            self._forgotten = self._last.popitem(last=False)[1]
        for viewer in self._viewers:
            if not viewer.woken.is_set() and any(map(viewer.looks_at, news)):
                viewer.woken.set()

    async def wait(
        self,
        token: str | None,
        *,
        looks_at: Callable[[Changed], bool],
        may_see: Callable[[Changed], bool],
        timeout_s: float,
    ) -> Changes:
        """Return what has changed since a token; wait if nothing has.

        Args:
            token: Token of an earlier answer. None answers at once, without changes.
            looks_at: Whether the viewer looks at something. Quick.
            may_see: Whether the viewer may know of it; only called for what it looks at.

        Returns:
            No changes after the longest wait, or when the service is about to end.
        """
        number = None if token is None else self._number_of(token)
        if token is None or number is None:
            return Changes(token=self._token(), everything=token is not None)
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        viewer = _Viewer(looks_at)
        self._viewers.add(viewer)
        try:
            while True:
                answer = self._since(number, looks_at, may_see)
                left_s = deadline_s - asyncio.get_running_loop().time()
                if answer.changed or answer.everything or left_s <= 0 or self._closed:
                    return answer
                number = self._number
                viewer.woken.clear()
                await self._woken(viewer, left_s)
        finally:
            self._viewers.discard(viewer)

    def close(self) -> None:
        """Answer all viewers at once: the service is about to end."""
        self._closed = True
        for viewer in self._viewers:
            viewer.woken.set()

    async def _woken(self, viewer: _Viewer, timeout_s: float) -> None:
        """Wait until something that the viewer looks at has changed, and shortly for what changes with it."""
        try:
            async with asyncio.timeout(timeout_s):
                await viewer.woken.wait()
                if not self._closed:
                    await asyncio.sleep(self._collected_s)
        except TimeoutError:
            pass

    def _since(self, number: int, looks_at: Callable[[Changed], bool], may_see: Callable[[Changed], bool]) -> Changes:
        if number < self._forgotten:
            return Changes(token=self._token(), everything=True)
        found: list[Changed] = []
        number_of_looks = 0
        for each in self._later_than(number):
            if not looks_at(each):
                continue
            # Also those that the viewer may not know of are counted: to decide about each takes time.
            number_of_looks += 1
            if number_of_looks > _REPORTED_MAX:
                return Changes(token=self._token(), everything=True)
            if may_see(each):
                found.append(each)
        return Changes(token=self._token(), changed=tuple(found))

    def _later_than(self, number: int) -> Iterator[Changed]:
        for each, last in reversed(self._last.items()):
            if last <= number:
                return
            yield each

    def _token(self) -> str:
        return f"{self._start}.{self._number}"

    def _number_of(self, token: str) -> int | None:
        """Return the number in a token; None if it is not one of this start."""
        start, _, number = token.partition(".")
        if start != self._start or not number.isdecimal() or len(number) > _NUMBER_DIGITS or int(number) > self._number:
            return None
        return int(number)
