"""AWS's wire protocols: parsers and serializers compiled from botocore's shapes."""
