"""What may go wrong with the data of a channel, and whose fault it is."""

from tidemill.shim.failures import ClientFailure, InstanceFailure, InternalFailure

__all__ = ["ChannelFault", "ObjectFault", "StoreFault"]


class ChannelFault(Exception):
    """An epoch cannot be streamed as promised; the text says why, in one line."""

    def failure(self, *, channel: str, epoch: int) -> InstanceFailure:
        """The same as the failure of the instance."""
        return InternalFailure(f"channel {channel!r}, epoch {epoch}: {self}")


class ObjectFault(ChannelFault):
    """The user's data, or what the script did to its FIFOs, is at fault."""

    def failure(self, *, channel: str, epoch: int) -> InstanceFailure:
        return ClientFailure(f"channel {channel!r}, epoch {epoch}: {self}")


class StoreFault(ChannelFault):
    """The object store does not hold what it promised."""
