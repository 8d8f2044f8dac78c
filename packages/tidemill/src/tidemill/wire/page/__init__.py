"""The page of the service below ``/_tidemill/``, a path that no bucket can have: its files, session and calls."""
