"""Checkpoints: every rank writes the variables that it holds, and any number of ranks can restore them."""
