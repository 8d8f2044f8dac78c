"""InstanceGroup: some of a job's instances, which may differ from the others in type and data."""

from collections.abc import Iterable, Mapping
from typing import Any


class InstanceGroup:
    """A group of a job's instances, for ``TensorFlow(instance_groups=[...])``.

    Args:
        instance_group_name: Name of the group, unique in the job.
        instance_type: Instance type by any name, as for `TensorFlow`.
        instance_count: Number of instances, at least 1.

    Raises:
        ValueError: An argument is missing, or the number is not allowed.
    """

    def __init__(
        self,
        instance_group_name: str | None = None,
        instance_type: str | None = None,
        instance_count: int | None = None,
    ) -> None:
        if not instance_group_name or not instance_type:
            raise ValueError(
                f"InstanceGroup: instance_group_name={instance_group_name!r}, instance_type={instance_type!r}; both are"
                " required"
            )
        if not isinstance(instance_count, int) or isinstance(instance_count, bool) or instance_count < 1:
            raise ValueError(f"InstanceGroup: instance_count={instance_count!r} is not allowed; expected at least 1")
        self.instance_group_name = instance_group_name
        self.instance_type = instance_type
        self.instance_count = instance_count

    def __repr__(self) -> str:
        return f"InstanceGroup({self.instance_group_name!r}, {self.instance_type!r}, {self.instance_count})"

    def _to_request_dict(self) -> dict[str, Any]:
        return {
            "InstanceGroupName": self.instance_group_name,
            "InstanceType": self.instance_type,
            "InstanceCount": self.instance_count,
        }


def groups_in_request(groups: Iterable[Any]) -> list[dict[str, Any]]:
    """Return groups as the request's ``InstanceGroups``.

    Args:
        groups: `InstanceGroup` objects, AWS's own, or dictionaries with the request's members.

    Raises:
        ValueError: A group is of another type.
    """
    return [_in_request(group) for group in groups]


def _in_request(group: Any) -> dict[str, Any]:
    if isinstance(group, Mapping):
        return dict(group)
    convert = getattr(group, "_to_request_dict", None)
    if convert is None:
        raise ValueError(f"instance_groups: {group!r} ({type(group).__name__}); expected an InstanceGroup")
    return convert()
