"""How tensors travel between ranks."""
