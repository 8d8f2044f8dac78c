"""Request bodies: framing, chunks, checksums."""
