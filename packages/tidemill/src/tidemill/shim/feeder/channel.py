"""The life of one channel: a FIFO an epoch, without end. How many epochs there are is the reader's business."""

import contextlib
import os
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass

from tidemill.core.clock import Clock
from tidemill.instance.spec import Entry
from tidemill.shim.failures import InstanceFailure, InternalFailure, of_os_error
from tidemill.shim.feeder.entry_writer import EntryWriter
from tidemill.shim.feeder.faults import ChannelFault
from tidemill.shim.feeder.inflate import Readable
from tidemill.shim.feeder.order import Order
from tidemill.shim.feeder.pipe_writer import Cancellation, Cancelled, PipeWriter, ReaderGone
from tidemill.shim.feeder.pipes import PipeDirectory
from tidemill.shim.remote_stores import RemoteStores

__all__ = ["ChannelFeed"]

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05
_FIRST_NOTICE_S, _NOTICE_S = 10.0, 60.0
_DISK_PAUSE_S = 1.0


@dataclass(slots=True, kw_only=True)
class ChannelFeed:
    """Feeds one channel, epoch after epoch, in a separate thread.

    Attributes:
        name: Of the channel.
        order: Which entries there are.
        writer: How they become bytes.
        stores: Stores of the remote entries.
        pipes: Directory of the FIFOs.
        log: Takes lines for the job's log.
        clock: Times the notices about a FIFO without a reader.
        epoch: The one on offer, or being written.
        failure: The first thing that kept the script from getting all its data.
    """

    name: str
    order: Order
    writer: EntryWriter
    stores: RemoteStores
    pipes: PipeDirectory
    log: Callable[[str], None]
    clock: Clock
    epoch: int = 0
    failure: InstanceFailure | None = None

    def offer_first(self) -> None:
        """Make the FIFO of the first epoch, and let readers know that the channel is fed. Raises OSError."""
        self.pipes.lock(self.name)
        self.pipes.offer(self._fifo(0))

    def run(self, cancellation: Cancellation) -> None:
        """Feed until cancelled; a second run continues at the same position."""
        try:
            while True:
                self._offer(self.epoch + 1, cancellation)
                pipe = self._await_reader(cancellation)
                try:
                    self._feed(pipe, cancellation)
                finally:
                    pipe.close()
                self.pipes.withdraw(self._fifo(self.epoch))
                self.epoch += 1
        except Cancelled:
            return
        except ChannelFault as fault:
            self._fail(fault.failure(channel=self.name, epoch=self.epoch))
            self._abandon()
        except Exception as error:  # noqa: BLE001 - the thread is all there is to tell of it
            traceback.print_exc()
            self._fail(InternalFailure(f"the feeder of channel {self.name!r} ended: {type(error).__name__}: {error}"))
            self._abandon()

    def _fifo(self, epoch: int) -> str:
        return f"{self.name}_{epoch}"

    def _offer(self, epoch: int, cancellation: Cancellation) -> None:
        """Make a FIFO; a disk that is full is waited for."""
        told = False
        while True:
            try:
                self.pipes.offer(self._fifo(epoch))
            except OSError as error:
                if not told:
                    self.log(f"tidemill: channel {self.name!r}: epoch {epoch} cannot be offered yet: {error.strerror}")
                told = True
                cancellation.wait(_DISK_PAUSE_S)
            else:
                return

    def _await_reader(self, cancellation: Cancellation) -> PipeWriter:
        """Wait until a reader opens the FIFO, without a time limit."""
        pause_s = _FIRST_PAUSE_S
        since_s = self.clock.monotonic_s()
        notice_at_s = since_s + _FIRST_NOTICE_S
        while True:
            try:
                fd = self.pipes.open(self._fifo(self.epoch))
            except FileNotFoundError:
                self._offer(self.epoch, cancellation)
                continue
            if fd is not None:
                return PipeWriter(fd, cancellation)
            cancellation.wait(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)
            now_s = self.clock.monotonic_s()
            # Later epochs are offered whether or not the script wants them: no news there.
            if self.epoch == 0 and now_s >= notice_at_s:
                fifo = self._fifo(0)
                self.log(f"tidemill: channel {self.name!r}: nobody has opened {fifo} for {now_s - since_s:.0f} s")
                notice_at_s = now_s + _NOTICE_S

    def _feed(self, pipe: PipeWriter, cancellation: Cancellation) -> None:
        """Write one epoch and its outcome. What goes wrong with the data ends the epoch, not the feeder."""
        objects, error = 0, ""
        try:
            with contextlib.closing(self._entries(cancellation)) as entries:
                for entry, body in entries:
                    self.writer.write(entry, pipe, body=body)
                    objects += 1
            pipe.flush()
        except ReaderGone:
            # Its right: a script may want no more than so many steps of an epoch.
            error = f"the reader left after {pipe.sent_bytes} bytes"
            self.log(f"tidemill: channel {self.name!r}, epoch {self.epoch}: {error}")
        except Cancelled:
            raise
        except ChannelFault as fault:
            error = str(fault)
            self._fail(fault.failure(channel=self.name, epoch=self.epoch))
            _flush(pipe)
        except OSError as cause:
            failure = of_os_error(cause, place=f"channel {self.name!r}, epoch {self.epoch}")
            error = str(failure)
            self._fail(failure)
            _flush(pipe)
        except Exception as bug:  # noqa: BLE001 - a waiting reader must be told of every error
            traceback.print_exc()
            error = f"{type(bug).__name__}: {bug}"
            self._fail(InternalFailure(f"channel {self.name!r}, epoch {self.epoch}: {error}"))
        self._conclude(pipe, objects=objects, error=error)

    def _entries(self, cancellation: Cancellation) -> Generator[tuple[Entry, Readable | None]]:
        entries = self.order.entries(self.epoch)
        if not self.stores:
            for entry in entries:
                yield entry, None
            return
        from tidemill.shim.feeder.prefetcher import prefetch  # with TLS, which most jobs have no use for

        yield from prefetch(entries, self.stores, cancellation)

    def _conclude(self, pipe: PipeWriter, *, objects: int, error: str) -> None:
        state = "error" if error else "ok"
        try:
            self.pipes.conclude(
                self._fifo(self.epoch), state=state, sent_bytes=pipe.sent_bytes, objects=objects, error=error
            )
        except OSError as cause:
            # The outcome stays "writing", which a reader takes for a feeder that died: safe, and said here.
            self._fail(InternalFailure(f"the outcome of {self._fifo(self.epoch)} cannot be written: {cause.strerror}"))

    def _abandon(self) -> None:
        """End every wait for a feeder that has ended: a reader that opens one of its FIFOs gets the end of the stream
        and an outcome."""
        for epoch in (self.epoch, self.epoch + 1):
            with contextlib.suppress(OSError, ChannelFault):
                self.pipes.conclude(self._fifo(epoch), state="error", error=str(self.failure))
                fd = self.pipes.open(self._fifo(epoch))
                if fd is not None:
                    os.close(fd)
            self.pipes.withdraw(self._fifo(epoch))
        self.pipes.release(self.name, str(self.failure))

    def _fail(self, failure: InstanceFailure) -> None:
        self.failure = self.failure or failure
        self.log(f"tidemill: {failure}")


def _flush(pipe: PipeWriter) -> None:
    """Hand over what was complete before the fault."""
    with contextlib.suppress(ReaderGone):
        pipe.flush()
