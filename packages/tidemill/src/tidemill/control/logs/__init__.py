"""The log groups of clients: their settings, retention, and queries over streams."""
