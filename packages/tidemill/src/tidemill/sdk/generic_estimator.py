"""Estimator: the estimator of SageMaker's SDK that is named by its image."""

from typing import Any, ClassVar

from tidemill.sdk.estimator import TensorFlow


class Estimator(TensorFlow):
    """Trains a script in the environment that an image selects.

    Args:
        image_uri: Image of TensorFlow or scikit-learn, or one of your own with a place in the setting ``images``.
        role: As for `TensorFlow`.
        instance_count: As for `TensorFlow`.
        instance_type: As for `TensorFlow`.
        entry_point: The script, as for `TensorFlow`.
        **arguments: Further arguments of `TensorFlow`.

    Raises:
        ValueError: There is no script: the program of an image is not run here.
    """

    _is_named_by_image: ClassVar[bool] = True

    def __init__(
        self,
        image_uri: str,
        role: str | None = None,
        instance_count: int | None = None,
        instance_type: str | None = None,
        *,
        entry_point: str | None = None,
        **arguments: Any,
    ) -> None:
        if entry_point is None:
            raise ValueError(
                f"Estimator(image_uri={image_uri!r}) has no entry_point: images are not run here, so the program within"
                " one cannot train; give the script, and its packages in a requirements.txt beside it"
            )
        super().__init__(
            entry_point,
            role,
            image_uri=image_uri,
            instance_count=instance_count,
            instance_type=instance_type,
            **arguments,
        )
