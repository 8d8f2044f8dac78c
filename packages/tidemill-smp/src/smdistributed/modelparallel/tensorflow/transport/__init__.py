"""Transports of tensors between ranks."""
