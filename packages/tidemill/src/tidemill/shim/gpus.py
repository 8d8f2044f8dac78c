"""The variable that shows an instance its GPUs, and no others."""

from collections.abc import Mapping, Sequence

from tidemill.shim.failures import ClientFailure

__all__ = ["visible_gpus"]

_NAME = "CUDA_VISIBLE_DEVICES"


def visible_gpus(devices: Sequence[str] | None, variables: Mapping[str, str]) -> dict[str, str]:
    """Return CUDA_VISIBLE_DEVICES for an instance.

    Args:
        devices: The instance's GPUs; None on a machine without any, which needs no such variable.
        variables: Those of the request. A CUDA_VISIBLE_DEVICES there counts the instance's own GPUs, from 0, as on a
            machine that has no others.

    Raises:
        ClientFailure: It names a GPU that the instance does not have.
    """
    if devices is None:
        return {}
    asked = variables.get(_NAME)
    if asked is None:
        return {_NAME: ",".join(devices)}
    numbers = [number.strip() for number in asked.split(",") if number.strip() not in ("", "-1")]
    if not all(number.isdecimal() and int(number) < len(devices) for number in numbers):
        has = f"0 to {len(devices) - 1}" if devices else "none"
        raise ClientFailure(
            f"{_NAME}={asked!r} in Environment: expected numbers of the instance's GPUs, which are {has}. Leave it out,"
            " or choose an instance type with more GPUs"
        )
    return {_NAME: ",".join(devices[int(number)] for number in numbers)}
