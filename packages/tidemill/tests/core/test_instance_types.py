"""What instance types have: figures of AWS's documentation."""

import pytest

from tidemill.core.instance_types import ALL_GPUS, instance_type


@pytest.mark.parametrize(
    ("name", "num_cpus", "gib", "num_gpus"),
    [
        ("ml.m5.large", 2, 8, 0),
        ("ml.m5.24xlarge", 96, 384, 0),
        ("ml.c5.xlarge", 4, 8, 0),
        ("ml.c5.18xlarge", 72, 144, 0),
        ("ml.c4.8xlarge", 36, 60, 0),
        ("ml.c5n.18xlarge", 72, 192, 0),
        ("ml.r5.12xlarge", 48, 384, 0),
        ("ml.t3.medium", 2, 4, 0),
        ("ml.g4dn.12xlarge", 48, 192, 4),
        ("ml.g5.16xlarge", 64, 256, 1),
        ("ml.p2.xlarge", 4, 61, 1),
        ("ml.p3.2xlarge", 8, 61, 1),
        ("ml.p3.16xlarge", 64, 488, 8),
        ("ml.p3dn.24xlarge", 96, 768, 8),
        ("ml.p4d.24xlarge", 96, 1152, 8),
    ],
)
def test_types_have_the_resources_that_aws_documents(name: str, num_cpus: int, gib: int, num_gpus: int) -> None:
    found = instance_type(name)
    assert (found.num_cpus, found.memory_bytes, found.num_gpus) == (num_cpus, gib * 1024**3, num_gpus)


@pytest.mark.parametrize(("name", "num_gpus"), [("local", 0), ("local_gpu", ALL_GPUS), ("ml.x9.large", 0), ("", 0)])
def test_a_type_outside_the_table_has_no_figures(name: str, num_gpus: int) -> None:
    found = instance_type(name)
    assert (found.num_cpus, found.memory_bytes, found.num_gpus) == (None, None, num_gpus)
