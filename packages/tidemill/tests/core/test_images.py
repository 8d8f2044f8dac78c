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
        (
            "236514542706.dkr.ecr.us-west-2.amazonaws.com/sagemaker-base-python-310:1.0",
            Image("sagemaker-base-python-310", None, "cpu", "py310", is_of_aws=False),
        ),
        ("tidemill/tensorflow:2.21", Image("tensorflow", "2.21", "cpu", None, is_of_aws=False)),
        ("localhost:5000/tensorflow-training", Image("tensorflow-training", None, "cpu", None)),
        ("localhost:5000/tensorflow-training:latest", Image("tensorflow-training", None, "cpu", None)),
        ("a/tensorflow-training:2.21.0-cpu-py311@sha256:00", Image("tensorflow-training", "2.21.0", "cpu", "py311")),
        (
            "a/pytorch-training:2.1.0-gpu-py310",
            Image("pytorch-training", "2.1.0", "gpu", "py310", is_of_aws=False, other="PyTorch"),
        ),
        ("mine:latest", Image("mine", None, "cpu", None, is_of_aws=False)),
        ("team/mine:v3-tf2.15-gpu-py310", Image("mine", "2.15", "gpu", "py310", is_of_aws=False)),
        ("tensorflow/tensorflow:nightly-gpu", Image("tensorflow", None, "gpu", None, is_of_aws=False)),
        (
            f"{REGISTRY}/huggingface-tensorflow-training:2.6.3-transformers4.17.0-gpu-py38-cu112-ubuntu20.04",
            Image("huggingface-tensorflow-training", "2.6.3", "gpu", "py38"),
        ),
        ("", Image("", None, "cpu", None)),
    ],
)
def test_an_image_uri_selects_version_device_and_python(uri: str, expected: Image) -> None:
    assert parse_image(uri) == expected


@pytest.mark.parametrize(
    ("uri", "other"),
    [
        ("763104351884.dkr.ecr.us-west-2.amazonaws.com/mxnet-training:1.9.0-cpu-py38", "MXNet"),
        ("520713654638.dkr.ecr.us-west-2.amazonaws.com/sagemaker-chainer:5.0.0-cpu-py3", "Chainer"),
        ("246618743249.dkr.ecr.us-west-2.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3", "scikit-learn"),
        ("246618743249.dkr.ecr.us-west-2.amazonaws.com/sagemaker-xgboost:1.7-1", "XGBoost"),
        ("153931337802.dkr.ecr.us-west-2.amazonaws.com/sagemaker-spark-processing:3.3-cpu-py39-v1", "Spark"),
        ("a/huggingface-pytorch-training:2.0.0-transformers4.28.1-gpu-py310", "PyTorch"),
        ("174872318107.dkr.ecr.us-west-2.amazonaws.com/kmeans:1", "SageMaker's built-in algorithm kmeans"),
        ("kmeans:1", ""),
        ("torchlight:1", ""),
        ("mine:1-pytorch", ""),
    ],
)
def test_an_image_of_another_framework_is_known_by_the_words_of_its_name(uri: str, other: str) -> None:
    assert parse_image(uri).other == other


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
