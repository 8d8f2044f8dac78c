"""Names that scripts import from `smdebug.core`."""
