"""Webhooks: changes of states are stored with the change, and delivered until the receiver has accepted them."""
