"""Feed one channel: one FIFO per epoch, in an endless sequence. The reader decides how many epochs it reads."""

import contextlib
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.core.clock import Clock
from tidemill.instance.remote_stores import RemoteStores
from tidemill.shim.failures import InstanceFailure, InternalFailure, of_os_error
from tidemill.shim.feeder.entry_writer import EntryWriter
from tidemill.shim.feeder.faults import ChannelFault
from tidemill.shim.feeder.order import Order
from tidemill.shim.feeder.pipe_writer import Cancellation, Cancelled, PipeWriter, ReaderGone
from tidemill.shim.feeder.pipes import PipeDirectory

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05
_FIRST_NOTICE_S, _NOTICE_S = 10.0, 60.0
_DISK_PAUSE_S = 1.0


@dataclass(slots=True, kw_only=True)
class ChannelFeed:
    """Feeds one channel, epoch after epoch, in a separate thread.

    Attributes:
        order: Returns the entries of each epoch in order.
        writer: Writes entries to a FIFO.
        stores: Remote stores of the entries.
        pipes: Directory of the FIFOs.
        log: Writes a line to the job's log.
        clock: Times the notices about a FIFO without a reader.
        epoch: Number of the epoch whose FIFO waits for a reader or is being written.
        failure: The first failure because of which the script did not get all its data; None without a failure.
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
        """Create the FIFO of the first epoch, and mark the channel as fed for readers.

        Raises:
            OSError: The files cannot be created.
        """
        self.pipes.lock(self.name)
        self.pipes.offer(self._fifo(0))

    def run(self, cancellation: Cancellation) -> None:
        """Feed the channel until cancelled. A second call continues with the same epoch.

        Args:
            cancellation: Ends the feed.
        """
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
        except Exception as error:  # noqa: BLE001 - no caller sees exceptions of this thread, so report them here
            traceback.print_exc()
            self._fail(InternalFailure(f"the feeder of channel {self.name!r} ended: {type(error).__name__}: {error}"))
            self._abandon()

    def _fifo(self, epoch: int) -> str:
        return f"{self.name}_{epoch}"

    def _offer(self, epoch: int, cancellation: Cancellation) -> None:
        """Create a FIFO; if the disk is full, wait for space."""
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
            # Later epochs are offered even if the script does not want them, so only the first deserves a notice.
            if self.epoch == 0 and now_s >= notice_at_s:
                fifo = self._fifo(0)
                self.log(f"tidemill: channel {self.name!r}: nobody has opened {fifo} for {now_s - since_s:.0f} s")
                notice_at_s = now_s + _NOTICE_S

    def _feed(self, pipe: PipeWriter, cancellation: Cancellation) -> None:
        """Write one epoch and its outcome. A fault of the data ends the epoch, not the feeder."""
        error = ""
        try:
            self._write_entries(pipe, cancellation)
            pipe.flush()
        except ReaderGone:
            # Not a failure: a script may read only some steps of an epoch.
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
        except Exception as bug:  # noqa: BLE001 - every error must reach a waiting reader
            traceback.print_exc()
            error = f"{type(bug).__name__}: {bug}"
            self._fail(InternalFailure(f"channel {self.name!r}, epoch {self.epoch}: {error}"))
        self._conclude(pipe, error=error)

    def _write_entries(self, pipe: PipeWriter, cancellation: Cancellation) -> None:
        if not self.stores:
            for batch in self.order.batches(self.epoch):
                self.writer.write_batch(batch, pipe)
            return
        from tidemill.shim.feeder.prefetcher import prefetch  # imports TLS, which most jobs do not need

        with contextlib.closing(prefetch(self.order.entries(self.epoch), self.stores, cancellation)) as entries:
            for entry, body in entries:
                self.writer.write(entry, pipe, body=body)

    def _conclude(self, pipe: PipeWriter, *, error: str) -> None:
        state = "error" if error else "ok"
        try:
            self.pipes.conclude(
                self._fifo(self.epoch), state=state, sent_bytes=pipe.sent_bytes, objects=pipe.entries, error=error
            )
        except OSError as cause:
            # The outcome stays "writing". A reader then assumes that the feeder died, which is safe.
            self._fail(InternalFailure(f"the outcome of {self._fifo(self.epoch)} cannot be written: {cause.strerror}"))

    def _abandon(self) -> None:
        """End all waits for this feeder, which has ended.

        A reader that opens one of its FIFOs gets the end of the stream and an outcome.
        """
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
    """Write the data that was complete before the fault."""
    with contextlib.suppress(ReaderGone):
        pipe.flush()
