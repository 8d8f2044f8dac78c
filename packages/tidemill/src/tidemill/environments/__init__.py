"""Environments of jobs and endpoints: built by uv from locks with hashes, once, read-only."""
