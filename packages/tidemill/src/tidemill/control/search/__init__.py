"""Find records by what they contain, page by page."""
