"""Feed all Pipe-mode channels of one instance: create the first FIFOs in advance, then run one thread per channel."""

import contextlib
import signal
import threading
from collections.abc import Callable, Generator, Sequence

from tidemill.core.clock import Clock
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.remote_stores import RemoteStores
from tidemill.instance.spec import ChannelSpec
from tidemill.shim.failures import InstanceFailure
from tidemill.shim.feeder.channel import ChannelFeed
from tidemill.shim.feeder.entry_writer import EntryWriter
from tidemill.shim.feeder.order import Order
from tidemill.shim.feeder.pipe_writer import Cancellation
from tidemill.shim.feeder.pipes import PipeDirectory


class PipeFeeder:
    """Feeds the channels of an instance.

    Args:
        directory: Directory of the instance. No script may run yet.
        channels: The channels in Pipe mode.
        stores: Remote stores of the objects. Default: none.
        log: Writes a line to the job's log; called from several threads.
        clock: Times the notices about FIFOs without a reader.

    Raises:
        OSError: The first FIFOs cannot be created.
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
        """The first failure because of which the script did not get all its data; None without a failure."""
        return next((feed.failure for feed in self._feeds if feed.failure), None)

    @contextlib.contextmanager
    def running(self) -> Generator[Callable[[], None]]:
        """Yield a function that starts the feeding threads; end the threads when the context is left.

        Call the function after the runtime's process has started: starting a process runs Python code between fork and
        exec, which is only safe in a process with one thread.
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
    # Signals must reach the main thread, and wake its select(2).
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    feed.run(cancellation)
