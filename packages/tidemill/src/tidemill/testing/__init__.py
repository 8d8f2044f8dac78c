"""A throw-away service for tests of scripts that talk to SageMaker: `Service`, and fixtures for pytest.

Importing this package starts nothing and loads neither boto3 nor the service.

Example:
    >>> from tidemill.testing import Service
    >>> with Service() as service:  # doctest: +SKIP
    ...     service.client("s3").create_bucket(Bucket="data")
"""

from tidemill.testing.service import Service, ServiceDied

__all__ = ["Service", "ServiceDied"]
