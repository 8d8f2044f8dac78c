"""Checks of members that requests of several kinds have, and what the service can honor on its machine.

The admission of each kind (`tidemill.control.training.admission`, `tidemill.control.transform.admission`, models and
endpoint configurations in `tidemill.control.hosting`) follows one rule: the service runs a request as asked or refuses
it, and never ignores a member. Members that are refused regardless of the others are listed in
`tidemill.core.compatibility`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemill.control.gpus import GpusMissing, plan_gpus
from tidemill.core.frameworks import Frameworks
from tidemill.core.names import S3Uri
from tidemill.errors import ResourceLimitExceeded, ValidationException
from tidemill.executors.base import Capacity

_RESERVED_VARIABLES = re.compile(
    r"(SM_|SAGEMAKER_BASE_DIR$|TIDEMILL_|AWS_ACCESS_KEY|AWS_SECRET|AWS_SESSION_TOKEN|AWS_CONTAINER_CREDENTIALS)"
)
_MAX_ENVIRONMENT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a service can honor on its machine.

    Attributes:
        frameworks: Selects the environments of jobs. Default: without the setting ``images``.
        no_network: Why this machine cannot isolate the network of a job; empty if it can.
        mounts: Whether directories are mounted for jobs.
        clustered: Whether jobs run on the machines of a cluster.
        capacity: Capacity of this machine; jobs that could never start are refused. Default: no refusals.
    """

    frameworks: Frameworks = field(default_factory=Frameworks)
    no_network: str = ""
    mounts: bool = True
    clustered: bool = False
    capacity: Capacity | None = None


def refusal(member: str, value: object, allowed: str) -> ValidationException:
    """Return the error that refuses a member of a request.

    Args:
        member: Path of the member, e.g. ``inputDataConfig.1.member.channelName``.
        value: The received value; shortened to 200 characters in the message.
        allowed: The allowed values, and what the user can do.
    """
    shown = repr(value) if len(repr(value)) <= 200 else repr(value)[:200] + "..."
    return ValidationException(f"Value {shown} at '{member}' is not allowed: {allowed}")


def check_s3_uri(uri: str, member: str) -> S3Uri:
    """Parse an S3 URI of a request.

    Args:
        uri: The URI, ``s3://bucket/key``.
        member: Path of the request member that holds the URI, for the error message.

    Raises:
        ValidationException: ``uri`` is not a well-formed S3 URI; the message names ``member``.
    """
    try:
        return S3Uri.parse(uri)
    except ValueError as error:
        raise refusal(member, uri, str(error)) from error


def check_target(uri: str, member: str, *, has_bucket: Callable[[str], bool]) -> None:
    """Refuse an S3 URI for output that is malformed, or whose bucket does not exist.

    Args:
        uri: The URI, ``s3://bucket/key``.
        member: Path of the request member that holds the URI, for the error message.
        has_bucket: Returns whether a bucket exists.

    Raises:
        ValidationException: The message names ``member``.
    """
    bucket = check_s3_uri(uri, member).bucket
    if not has_bucket(bucket):
        raise refusal(member, uri, f"the bucket {bucket!r} does not exist; create it first")


def check_environment(values: Mapping[str, str]) -> None:
    """Refuse environment variables that the service sets itself, and values that no environment can hold.

    Args:
        values: Values by name of the variable; at most 100.

    Raises:
        ValidationException: Names the variable.
    """
    if len(values) > _MAX_ENVIRONMENT:
        raise refusal("environment", f"{len(values)} entries", f"at most {_MAX_ENVIRONMENT}")
    for name, value in values.items():
        if _RESERVED_VARIABLES.match(name):
            raise refusal(f"environment.{name}", value, "SM_*, TIDEMILL_* and AWS credentials are set by the service")
        if "\0" in value:
            raise refusal(f"environment.{name}", value, "a NUL character cannot stand in an environment variable")


def check_network(
    request: Mapping[str, Any],
    *,
    capabilities: Capabilities,
    instances: int,
    at: str = "",
    encrypts_itself: bool = False,
) -> None:
    """Refuse isolation or encryption of a job's network if the service cannot provide it.

    Args:
        request: A job's request, by the member names of CreateTrainingJob.
        capabilities: What the service can honor.
        at: Path of the structure with the members in the actual request, with a period, for the error message.
        encrypts_itself: Whether the job encrypts what its instances send each other.

    Raises:
        ValidationException: Names the member.
    """
    if capabilities.clustered:
        isolated = "the instances of a cluster share the networks of their machines"
        encrypted = (
            "between the machines of a cluster only what model parallelism sends is encrypted (and Horovod in it);"
            " MPI, TensorFlow's own strategies and other scripts send theirs in the clear"
        )
        remedy = 'leave it out, or let the service run jobs on its own machine (executor = "local")'
    elif capabilities.no_network:
        isolated = f"no network of the job's own can be closed: {capabilities.no_network}"
        encrypted = f"the instances share this machine's network, where others may listen: {capabilities.no_network}"
        remedy = "leave it out, or let the service run jobs in isolation mode full"
    else:
        return
    if request.get("EnableNetworkIsolation"):
        raise refusal(f"{at}enableNetworkIsolation", True, f"{isolated}; {remedy}")
    is_safe = capabilities.clustered and encrypts_itself
    if request.get("EnableInterContainerTrafficEncryption") and instances > 1 and not is_safe:
        raise refusal(f"{at}enableInterContainerTrafficEncryption", True, f"{encrypted}; {remedy}")


def check_capacity(
    request: Mapping[str, Any],
    *,
    capabilities: Capabilities,
    instances: int,
    member: str = "resourceConfig.instanceCount",
) -> None:
    """Refuse a job that this machine could never start. A job that only has to wait for others is accepted.

    The memory and the processors of an instance type are limits and no reservations, so no job is too large for them.

    Args:
        request: A job's request, by the member names of CreateTrainingJob.
        capabilities: What the service can honor.
        member: Path of their number in the actual request, for the error message.

    Raises:
        ResourceLimitExceeded: Names the member.
    """
    capacity = capabilities.capacity
    if capacity is None:
        return
    most = capacity.instances
    if instances > max(1, most):
        raise ResourceLimitExceeded(
            f"Value {instances} at '{member}' is not allowed: {most} instances can run at the same time"
            f" here, so the job would never start. Ask for at most {most}, or raise the setting max_instances"
        )
    if not capacity.gpus:
        return  # all instances run without one
    try:
        plan_gpus(request, present=capacity.gpus, shared=capacity.shares_gpus, frameworks=capabilities.frameworks)
    except GpusMissing as error:
        raise ResourceLimitExceeded(f"Value {instances} at '{member}' is not allowed: {error}") from error
