"""Use cases: what it means to create, run, stop and clean up jobs and endpoints. Independent of HTTP."""
