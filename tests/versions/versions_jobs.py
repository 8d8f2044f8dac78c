"""Requests, data and log lines of jobs on a TensorFlow version."""

import struct
from typing import Any

BUCKET = "sagemaker-us-west-2-000000000000"


def image(version: str, python: str = "py3", device: str = "cpu") -> dict[str, Any]:
    uri = f"763104351884.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:{version}-{device}-{python}"
    return {"AlgorithmSpecification": {"TrainingImage": uri, "TrainingInputMode": "File"}}


def recordio(records: list[bytes]) -> bytes:
    parts = (struct.pack("<II", 0xCED7230A, len(each)) + each + b"\0" * (-len(each) % 4) for each in records)
    return b"".join(parts)


def field(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def example(**values: float) -> bytes:
    """Return a serialized tf.train.Example with one float per name."""
    features = b""
    for name, value in values.items():
        floats = field(2, field(1, struct.pack("<f", value)))  # Feature.float_list.value
        features += field(1, field(1, name.encode()) + field(2, floats))
    return field(1, features)


def logged(lines: list[str], head: str) -> str:
    """Return the rest of the only line that begins with ``head``."""
    (found,) = [line.removeprefix(head) for line in lines if line.startswith(head)]
    return found
