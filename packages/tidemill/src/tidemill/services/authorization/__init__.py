"""Authorization: maps requests to IAM permissions and checks them against the policy of the caller's role."""

from tidemill.services.authorization.authorization import Authorization

__all__ = ["Authorization"]
