"""S3: buckets, objects, listings, multipart uploads, tags."""

from tidemill.services.s3.handed_files import HandedFiles
from tidemill.services.s3.service import S3Service

__all__ = ["HandedFiles", "S3Service"]
