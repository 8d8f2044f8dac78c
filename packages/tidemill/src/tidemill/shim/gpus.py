"""CUDA_VISIBLE_DEVICES, which limits an instance to its GPUs."""

from collections.abc import Mapping, Sequence

from tidemill.shim.failures import ClientFailure

_NAME = "CUDA_VISIBLE_DEVICES"


def visible_gpus(devices: Sequence[str] | None, variables: Mapping[str, str]) -> dict[str, str]:
    """Return CUDA_VISIBLE_DEVICES for an instance.

    Args:
        devices: GPUs of the instance. None on a machine without GPUs, where the variable is not set.
        variables: Environment variables of the request. The numbers in their CUDA_VISIBLE_DEVICES refer to the GPUs of
            the instance, counted from 0.

    Returns:
        The variable, or an empty dict.

    Raises:
        ClientFailure: The request's CUDA_VISIBLE_DEVICES names a GPU that the instance does not have.
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
