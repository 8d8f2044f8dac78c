"""Authorization: what a request needs by IAM's documents, held against the policy of the caller's role."""

from tidemill.services.authorization.authorization import Authorization

__all__ = ["Authorization"]
