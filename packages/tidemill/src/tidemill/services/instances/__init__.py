"""The service's own API, by which instances on other machines report."""

from tidemill.services.instances.service import InstancesService

__all__ = ["InstancesService"]
