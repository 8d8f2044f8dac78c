"""The feeder: streams the channels in Pipe mode into FIFOs that the script reads, one a channel and epoch.

What it shares with a reader is in `docs/reference/pipe-mode-files.md`. It knows nothing of records: it copies bytes.
"""

from tidemill.shim.feeder.feeder import Feeder

__all__ = ["Feeder"]
