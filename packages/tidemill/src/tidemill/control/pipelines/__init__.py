"""Pipelines: definitions, executions, and the driver that runs their steps."""
