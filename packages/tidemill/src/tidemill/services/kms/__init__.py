"""AWS Key Management Service: the names of keys, with which nothing is encrypted."""

from tidemill.services.kms.service import KmsService

__all__ = ["KmsService"]
