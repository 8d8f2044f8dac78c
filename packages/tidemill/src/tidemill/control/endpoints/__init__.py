"""Endpoints: variants, instances, updates and the routing of requests."""

from tidemill.control.endpoints.driver import EndpointDriver

__all__ = ["EndpointDriver"]
