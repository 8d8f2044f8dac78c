"""The network of a processing job, in the form of SageMaker's SDK."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.sdk.arguments import present


@dataclass
class NetworkConfig:
    """The network of a processing job.

    Attributes:
        enable_network_isolation: Whether the command can reach only the job's own instances, and not even S3. Refused
            on a machine without isolation mode ``full``. Default: False.
        security_group_ids: VPC security group IDs, sent as ``VpcConfig.SecurityGroupIds``. Recorded.
        subnets: VPC subnet IDs, sent as ``VpcConfig.Subnets``. Recorded.
        encrypt_inter_container_traffic: Sent as ``EnableInterContainerTrafficEncryption``; see the estimator's argument
            of that name. Default: False.
    """

    enable_network_isolation: bool = False
    security_group_ids: Sequence[str] | None = None
    subnets: Sequence[str] | None = None
    encrypt_inter_container_traffic: bool | None = None

    def to_request(self) -> dict[str, Any]:
        """Return the request's NetworkConfig.

        Returns:
            Members by botocore's names.
        """
        vpc = present(SecurityGroupIds=self.security_group_ids, Subnets=self.subnets)
        return present(
            EnableNetworkIsolation=self.enable_network_isolation,
            EnableInterContainerTrafficEncryption=self.encrypt_inter_container_traffic,
            VpcConfig=vpc or None,
        )
