"""Application Auto Scaling: scalable targets, scaling policies and scaling activities of endpoints' variants."""

from tidemill.services.autoscaling.service import AutoScalingService

__all__ = ["AutoScalingService"]
