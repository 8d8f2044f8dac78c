"""The child process in which Ray runs. Each thread that sends requests is answered by a separate thread."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.managers import BaseManager, RemoteError
from typing import Any, TypeVar

from tidemill.executors.ray import driver

Result = TypeVar("Result")


class RayProcessEnded(Exception):
    """Ray's process ended before it answered."""


class RayProcess:
    """A process that is connected to a cluster. It runs functions of `driver`; a slow call does not delay other calls.

    Raises:
        ConnectionError: The cluster cannot be reached.
        RayProcessEnded: The process ended before it was connected.
    """

    def __init__(self, address: str) -> None:
        self._manager = _Manager(ctx=multiprocessing.get_context("spawn"))
        try:
            self._manager.start(driver.prepare)
        except (EOFError, OSError) as error:
            raise RayProcessEnded(repr(error)) from error
        try:
            self._questions = self._manager.questions()  # type: ignore[attr-defined]
            self.ask(driver.connect, address)
        except BaseException:
            self.close()
            raise

    def ask(self, question: Callable[..., Result], *arguments: Any) -> Result:
        """Run ``question`` in the process. Return its result, or raise its exception.

        Args:
            question: A function of `driver`.

        Raises:
            RayProcessEnded: The process ended before it answered.
        """
        try:
            answer, error = self._questions.ask(question, arguments)
        except (EOFError, OSError, RemoteError) as ended:
            raise RayProcessEnded(repr(ended)) from ended
        if error is not None:
            raise error
        return answer  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the process, even if it is busy."""
        self._manager.shutdown()


class _Questions:
    """Runs the questions in the process."""

    def ask(self, question: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, Exception | None]:
        try:
            return question(*arguments), None
        except Exception as error:  # noqa: BLE001 - raised by the caller, except for errors of the connection
            return None, error


class _Manager(BaseManager):
    pass


_Manager.register("questions", _Questions)
