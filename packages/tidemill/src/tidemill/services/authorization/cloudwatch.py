"""Permissions that CloudWatch's operations need. IAM has no resources for them: a policy allows all metrics or none."""

from collections.abc import Mapping

from tidemill.core.policy import Permission
from tidemill.services.authorization.rule import Members, Rule

__all__ = ["CLOUDWATCH"]


def _on_everything(operation: str) -> Rule:
    def rule(request: Members, region: str) -> tuple[Permission, ...]:
        return (Permission(f"cloudwatch:{operation}", "*"),)

    return rule


CLOUDWATCH: Mapping[str, Rule] = {
    operation: _on_everything(operation) for operation in ("GetMetricData", "GetMetricStatistics", "ListMetrics")
}
"""By operation."""
