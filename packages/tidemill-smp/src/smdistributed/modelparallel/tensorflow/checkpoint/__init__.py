"""Checkpoints: every rank writes its own variables, and any number of ranks reads them back."""
