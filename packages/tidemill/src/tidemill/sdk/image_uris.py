"""URIs of images, which here select an environment."""

from typing import Any

from tidemill.core.images import DEFAULT_TENSORFLOW, inference_image, scikit_learn_image, training_image
from tidemill.sdk.variable import device_for

_SCIKIT_LEARN = ("sklearn", "scikit-learn")


def retrieve(
    framework: str,
    region: str,
    version: str | None = None,
    py_version: str | None = None,
    instance_type: Any = None,
    accelerator_type: str | None = None,
    image_scope: str | None = None,
    **others: Any,
) -> str:
    """Return the URI of an image.

    Args:
        framework: ``tensorflow`` or ``sklearn``.
        region: AWS region of the registry.
        version: Version of the framework. Default: the newest TensorFlow.
        py_version: ``py3``, or a version such as ``py311``.
        instance_type: Type of the instances, from which the device is chosen.
        accelerator_type: Ignored: Elastic Inference no longer exists.
        image_scope: ``training`` or ``inference``. Default: ``training``.
        **others: Further arguments of AWS's function. Ignored: they belong to other images.

    Returns:
        The URI.

    Raises:
        ValueError: There is no such image.

    Example:
        >>> retrieve("tensorflow", "us-west-2", "2.21", "py311", "ml.m5.large", image_scope="inference")
        '000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-inference:2.21.0-cpu'
    """
    del accelerator_type, others
    if framework in _SCIKIT_LEARN and version is not None:
        return scikit_learn_image(version, region)
    if framework != "tensorflow":
        raise ValueError(
            f"framework={framework!r}, version={version!r}: there is no such image here; expected 'tensorflow', or"
            " 'sklearn' with a version"
        )
    tensorflow = version or DEFAULT_TENSORFLOW
    if image_scope == "inference":
        return inference_image(tensorflow, region, device=device_for(instance_type))
    if image_scope not in (None, "training"):
        raise ValueError(f"image_scope={image_scope!r} is not allowed; expected 'training' or 'inference'")
    return training_image(tensorflow, py_version or "py3", region, device=device_for(instance_type))
