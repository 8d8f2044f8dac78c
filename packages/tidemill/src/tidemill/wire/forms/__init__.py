"""S3's presigned POST: an HTML form with a signed policy that uploads one object."""
