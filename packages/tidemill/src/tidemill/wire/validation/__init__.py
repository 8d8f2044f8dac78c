"""Checks of parsed requests: botocore's constraints, and members that are not supported."""
