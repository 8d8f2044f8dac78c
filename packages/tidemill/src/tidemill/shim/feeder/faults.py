"""Faults of a channel's data, classified by cause: the user or the object store."""

from tidemill.shim.failures import ClientFailure, InstanceFailure, InternalFailure


class ChannelFault(Exception):
    """An epoch cannot be streamed completely; the message is one line with the reason."""

    def failure(self, *, channel: str, epoch: int) -> InstanceFailure:
        """Return the fault as a failure of the instance."""
        return InternalFailure(f"channel {channel!r}, epoch {epoch}: {self}")


class ObjectFault(ChannelFault):
    """The user's data is invalid, or the script has replaced or removed its FIFOs."""

    def failure(self, *, channel: str, epoch: int) -> InstanceFailure:
        return ClientFailure(f"channel {channel!r}, epoch {epoch}: {self}")


class StoreFault(ChannelFault):
    """The content of an object in the store is missing or damaged."""
