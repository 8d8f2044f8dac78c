"""AWS Identity and Access Management: looks up roles, and manages the access keys of users."""

from tidemill.services.iam.service import IamService

__all__ = ["IamService"]
