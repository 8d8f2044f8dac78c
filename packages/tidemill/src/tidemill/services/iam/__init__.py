"""AWS Identity and Access Management: roles that are looked up, and the access keys of users."""

from tidemill.services.iam.service import IamService

__all__ = ["IamService"]
