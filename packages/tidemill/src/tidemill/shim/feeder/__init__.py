"""The feeder: streams the channels in Pipe mode into FIFOs that the script reads, one per channel and epoch.

`docs/reference/pipe-mode-files.md` describes the files that feeder and readers share. The feeder copies bytes, and does
not parse records.
"""

from tidemill.shim.feeder.feeder import PipeFeeder

__all__ = ["PipeFeeder"]
