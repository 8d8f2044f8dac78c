"""Run a temporary service in tests of code that uses SageMaker: `Service`, and fixtures for pytest.

Importing this package starts no service and imports neither boto3 nor the service's code.

Example:
    >>> from tidemill.testing import Service
    >>> with Service() as service:  # doctest: +SKIP
    ...     service.client("s3").create_bucket(Bucket="data")
"""

from tidemill.testing.service import Service, ServiceDied

__all__ = ["Service", "ServiceDied"]
