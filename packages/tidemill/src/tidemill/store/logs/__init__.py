"""Log streams: segment files, search."""
