"""Image URIs, in every form that AWS has used for TensorFlow."""

import pytest

from tidemill.core import images
from tidemill.core.images import Image, parse_image

REGISTRY = "000000000000.dkr.ecr.us-west-2.amazonaws.com"


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        (f"{REGISTRY}/tensorflow-training:2.21.0-cpu-py311", Image("tensorflow-training", "2.21.0", "cpu", "py311")),
        (
            "763104351884.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.19.0-gpu-py312-cu125-ubuntu22.04-sagemaker",
            Image("tensorflow-training", "2.19.0", "gpu", "py312"),
        ),
        (f"{REGISTRY}/tensorflow-inference:2.21.0-cpu", Image("tensorflow-inference", "2.21.0", "cpu", None)),
        (
            "520713654638.dkr.ecr.us-west-2.amazonaws.com/sagemaker-tensorflow-scriptmode:1.12-gpu-py3",
            Image("sagemaker-tensorflow-scriptmode", "1.12", "gpu", "py3"),
        ),
        ("sagemaker-tensorflow:1.10.0-gpu-py2", Image("sagemaker-tensorflow", "1.10.0", "gpu", "py2")),
        ("tidemill/tensorflow:2.21", Image("tensorflow", "2.21", "cpu", None)),
        ("localhost:5000/tensorflow-training", Image("tensorflow-training", None, "cpu", None)),
        ("localhost:5000/tensorflow-training:latest", Image("tensorflow-training", None, "cpu", None)),
        ("a/tensorflow-training:2.21.0-cpu-py311@sha256:00", Image("tensorflow-training", "2.21.0", "cpu", "py311")),
        ("a/pytorch-training:2.1.0-gpu-py310", Image("pytorch-training", None, "cpu", None)),
        ("", Image("", None, "cpu", None)),
    ],
)
def test_an_image_uri_selects_version_device_and_python(uri: str, expected: Image) -> None:
    assert parse_image(uri) == expected


def test_parsing_inverts_making() -> None:
    training = images.training_image("2.21", "py311", "eu-west-1")
    assert training == "000000000000.dkr.ecr.eu-west-1.amazonaws.com/tensorflow-training:2.21.0-cpu-py311"
    assert parse_image(training).framework_version == "2.21.0"
    assert images.inference_image("2.21.0", "us-west-2") == f"{REGISTRY}/tensorflow-inference:2.21.0-cpu"
    assert parse_image(images.training_image("2.21", "py311", device="gpu")).device == "gpu"


def test_only_the_python_handler_image_selects_python_handlers() -> None:
    assert parse_image(images.python_inference_image("2.21", "py311")).serves_python_handlers
    assert not parse_image(images.inference_image("2.21")).serves_python_handlers
    # A training image that is used for serving gets TensorFlow Serving's kind of endpoint.
    assert not parse_image(images.training_image("2.21", "py311")).serves_python_handlers


@pytest.mark.parametrize(
    ("instance_type", "device"),
    [
        ("ml.p2.xlarge", "gpu"),
        ("ml.g4dn.2xlarge", "gpu"),
        ("local_gpu", "gpu"),
        ("ml.c5.xlarge", "cpu"),
        ("local", "cpu"),
    ],
)
def test_the_device_follows_the_instance_type(instance_type: str, device: str) -> None:
    assert images.device_of(instance_type) == device


def test_an_invalid_version_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'latest' is not a version"):
        images.training_image("latest", "py311")
