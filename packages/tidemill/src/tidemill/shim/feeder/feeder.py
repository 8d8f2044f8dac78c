"""All channels in Pipe mode of one instance: their FIFOs made in advance, a thread for each while the runtime runs."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence

from tidemill.core.clock import Clock
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.spec import ChannelSpec
from tidemill.shim.failures import InstanceFailure
from tidemill.shim.feeder.channel import ChannelFeed
from tidemill.shim.feeder.entry_writer import EntryWriter
from tidemill.shim.feeder.order import Order
from tidemill.shim.feeder.pipe_writer import Cancellation
from tidemill.shim.feeder.pipes import PipeDirectory
from tidemill.shim.remote_stores import RemoteStores

__all__ = ["Feeder"]


class Feeder:
    """Feeds the channels of an instance.

    Args:
        directory: Of the instance; no script runs yet.
        channels: Those in Pipe mode.
        stores: Stores of the remote objects.
        log: Takes lines for the job's log; called from several threads.
        clock: Of notices.

    Raises:
        OSError: The first FIFOs cannot be made.
    """

    def __init__(
        self,
        directory: InstanceDirectory,
        channels: Sequence[ChannelSpec],
        *,
        stores: RemoteStores | None = None,
        log: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._feeds: list[ChannelFeed] = []
        if not channels:
            return
        pipes = PipeDirectory(directory.ml / "input/data")
        for channel in channels:
            order = Order(directory.channel_file(channel.name), channel)
            writer = EntryWriter(
                gzip=channel.compression == "Gzip",
                record_io=channel.record_wrapper == "RecordIO",
                spool=directory.path,
            )
            feed = ChannelFeed(
                name=channel.name,
                order=order,
                writer=writer,
                stores=stores or RemoteStores({}),
                pipes=pipes,
                log=log,
                clock=clock,
            )
            feed.offer_first()
            self._feeds.append(feed)

    @property
    def failure(self) -> InstanceFailure | None:
        """What kept the script from getting all the data of its channels; None where nothing did."""
        return next((feed.failure for feed in self._feeds if feed.failure), None)

    @contextlib.contextmanager
    def running(self) -> Iterator[Callable[[], None]]:
        """Within, the channels are fed from when the given function is called.

        The threads live between the start of the runtime's process and its end: starting a process runs Python code
        between fork and exec, which is safe while there is one thread only.
        """
        cancellation = Cancellation()
        threads = [
            threading.Thread(target=_run, args=(feed, cancellation), name=f"feed {feed.name}", daemon=True)
            for feed in self._feeds
        ]

        def start() -> None:
            for thread in threads:
                thread.start()

        try:
            yield start
        finally:
            cancellation.cancel()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
            cancellation.close()


def _run(feed: ChannelFeed, cancellation: Cancellation) -> None:
    # They are for the main thread, whose select(2) they must wake.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    feed.run(cancellation)
