"""Models with changing versions: configuration, polling, warm-up, and loading while other versions serve."""
