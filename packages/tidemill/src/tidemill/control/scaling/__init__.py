"""Automatic scaling of production variants: scalable targets, their policies, and the autoscaler that follows them."""
