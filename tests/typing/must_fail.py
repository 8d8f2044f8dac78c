"""The type checker must refuse this file; `make check` fails if it does not. This tests the check itself."""

from tidemill.core.names import S3Uri


def untyped(value):
    return value


def wrong() -> int:
    return S3Uri.parse("s3://bucket/key")
