"""AWS request signatures: version 4, and version 2 of presigned URLs."""
