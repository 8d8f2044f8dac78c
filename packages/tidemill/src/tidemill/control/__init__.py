"""Use cases of the service: create, run, stop and clean up jobs and endpoints. Independent of HTTP."""
