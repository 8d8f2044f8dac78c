"""The ranks of a job: how they connect, exchange Python objects and arrays, and detect lost ranks."""
