"""What a SageMaker instance type has: virtual CPUs, memory and GPUs. Facts about AWS's machines, no settings."""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

ALL_GPUS = -1
"""``num_gpus`` of ``local_gpu``: as many as the machine has."""

OFFERING_SHAPES = (
    "TrainingInstanceType",
    "ProcessingInstanceType",
    "ProductionVariantInstanceType",
    "TransformInstanceType",
)
"""Shapes of botocore's model of SageMaker whose values are the instance types that AWS offers."""

_LOCAL = ("local", "local_gpu")

_VCPUS = {
    "medium": 2,
    "large": 2,
    "xlarge": 4,
    "2xlarge": 8,
    "4xlarge": 16,
    "8xlarge": 32,
    "9xlarge": 36,
    "10xlarge": 40,
    "12xlarge": 48,
    "16xlarge": 64,
    "18xlarge": 72,
    "24xlarge": 96,
    "32xlarge": 128,
    "48xlarge": 192,
}
"""By size; true for every family but those in `_SPECIAL`."""

_GIB_PER_VCPU = {
    **dict.fromkeys(
        ("m4", "m5", "m5d", "m6g", "m6gd", "m6i", "m6id", "m7i", "m7g", "g4dn", "g5", "g6", "inf1", "t3"), 4.0
    ),
    **dict.fromkeys(("c5", "c5d", "c5n", "c6g", "c6gd", "c6i", "c6id", "c6gn", "c7i", "c7g"), 2.0),
    **dict.fromkeys(("r5", "r5d", "r6g", "r6i", "r6id", "r7i", "r7g", "g6e"), 8.0),
    "c4": 1.875,
    "p2": 15.25,
    "p3": 7.625,
}

_GPUS = {
    **{f"{family}.{size}": 1 for family in ("g4dn", "g5", "g6", "g6e") for size in ("xlarge", "2xlarge", "4xlarge")},
    **{f"{family}.{size}": 1 for family in ("g4dn", "g5", "g6", "g6e") for size in ("8xlarge", "16xlarge")},
    **{f"{family}.12xlarge": 4 for family in ("g4dn", "g5", "g6", "g6e")},
    **{f"{family}.24xlarge": 4 for family in ("g5", "g6", "g6e")},
    **{f"{family}.48xlarge": 8 for family in ("g5", "g6", "g6e")},
    "p2.xlarge": 1,
    "p2.8xlarge": 8,
    "p2.16xlarge": 16,
    "p3.2xlarge": 1,
    "p3.8xlarge": 4,
    "p3.16xlarge": 8,
    "p3dn.24xlarge": 8,
    **dict.fromkeys(("p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge"), 8),
}

_SPECIAL: Mapping[str, tuple[int, float]] = {
    "c4.8xlarge": (36, 60),
    "c5n.2xlarge": (8, 21),
    "c5n.4xlarge": (16, 42),
    "c5n.9xlarge": (36, 96),
    "c5n.18xlarge": (72, 192),
    "c5n.large": (2, 5.25),
    "c5n.xlarge": (4, 10.5),
    "t3.medium": (2, 4),
    "g5.48xlarge": (192, 768),
    "p3dn.24xlarge": (96, 768),
    "p4d.24xlarge": (96, 1152),
    "p4de.24xlarge": (96, 1152),
    "p5.48xlarge": (192, 2048),
    "p5e.48xlarge": (192, 2048),
    "p5en.48xlarge": (192, 2048),
}
"""Virtual CPUs and GiB of types that do not follow the rules of their family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """A type of the table.

    Attributes:
        num_cpus: Virtual CPUs; None if the table does not have the type.
        memory_bytes: Memory; None if the table does not have the type.
        num_gpus: NVIDIA GPUs; `ALL_GPUS` for ``local_gpu``.
    """

    num_cpus: int | None = None
    memory_bytes: int | None = None
    num_gpus: int = 0


def instance_type(name: str) -> InstanceType:
    """Return what an instance type has.

    Example:
        >>> instance_type("ml.p3.8xlarge")
        InstanceType(num_cpus=32, memory_bytes=261993005056, num_gpus=4)
        >>> instance_type("local")
        InstanceType(num_cpus=None, memory_bytes=None, num_gpus=0)
    """
    if name == "local_gpu":
        return InstanceType(num_gpus=ALL_GPUS)
    short = name.removeprefix("ml.")
    family, _, size = short.partition(".")
    num_gpus = _GPUS.get(short, 0)
    if short in _SPECIAL:
        num_cpus, gib = _SPECIAL[short]
    elif family in _GIB_PER_VCPU and size in _VCPUS:
        num_cpus = _VCPUS[size]
        gib = num_cpus * _GIB_PER_VCPU[family]
    else:
        return InstanceType(num_gpus=num_gpus)
    return InstanceType(num_cpus=num_cpus, memory_bytes=int(gib * 1024**3), num_gpus=num_gpus)


def unoffered(name: str, *, offered: Collection[str]) -> str | None:
    """Return a warning about an instance type that AWS does not offer; None if it does, or if it is a local one.

    Args:
        offered: The types of AWS's model.

    Example:
        >>> unoffered("m5.large", offered=["ml.m5.large"])
        "SageMaker has no instance type 'm5.large' (did you mean 'ml.m5.large'?); on AWS the request would be refused"
    """
    if not name or name in _LOCAL or name in offered:
        return None
    near = [each for each in offered if each == f"ml.{name}"] or difflib.get_close_matches(name, sorted(offered), n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"SageMaker has no instance type {name!r}{hint}; on AWS the request would be refused"
