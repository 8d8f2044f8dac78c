"""MultiDataModel: several archives below one prefix, served by one endpoint."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidemill.core.names import S3Uri
from tidemill.sdk.model import Model
from tidemill.sdk.predictor import TensorFlowPredictor

__all__ = ["MultiDataModel"]


class MultiDataModel(Model):
    """Archives below a prefix; an endpoint loads each at its first request, which names it as ``target_model``.

    Args:
        name: Name of the model.
        model_data_prefix: S3 URI of the prefix.
        model: A `TensorFlowModel` with the image, role, variables and predictor. Default: those of the other arguments.
        image_uri: Image of the server, without ``model``.
        role: As for `Model`.
        sagemaker_session: As for `Model`.
        **arguments: Further arguments of `Model`.

    Raises:
        ValueError: ``model`` is given together with ``image_uri``, ``role`` or further arguments.

    Example:
        >>> models = MultiDataModel("digits", "s3://bucket/models", model=model)  # doctest: +SKIP
        >>> models.deploy(1, "local").predict(x, initial_args={"TargetModel": "a.tar.gz"})  # doctest: +SKIP
    """

    def __init__(
        self,
        name: str,
        model_data_prefix: str,
        model: Model | None = None,
        image_uri: str | None = None,
        role: str | None = None,
        sagemaker_session: Any = None,
        **arguments: Any,
    ) -> None:
        if model is not None and (image_uri or role or arguments):
            raise ValueError("model has the image, the role and further arguments; give the model or these, not both")
        if model is not None:
            arguments = {"predictor_cls": model.predictor_cls, "vpc_config": model.vpc_config}
            role, sagemaker_session = model.role, sagemaker_session or model.sagemaker_session
        else:
            arguments = {"predictor_cls": TensorFlowPredictor, **arguments}
        super().__init__(
            model_data_prefix,
            role or "SageMakerRole",
            image_uri,
            name=name,
            sagemaker_session=sagemaker_session,
            **arguments,
        )
        self.model_data_prefix = model_data_prefix
        self.model = model

    def container(self, instance_type: str) -> dict[str, Any]:
        """Return the container definition for CreateModel.

        Args:
            instance_type: Instance type, from which the image is chosen.

        Returns:
            The request member, with image, prefix and environment.
        """
        container = (super() if self.model is None else self.model).container(instance_type)
        return {**container, "ModelDataUrl": self.model_data_prefix, "Mode": "MultiModel"}

    def add_model(self, model_data_source: str, model_data_path: str | None = None) -> str:
        """Copy an archive below the prefix; an endpoint serves it from then on.

        Args:
            model_data_source: A local file, or the S3 URI of an archive.
            model_data_path: Name below the prefix. Default: the file's name, or the key of the archive.

        Returns:
            S3 URI of the copy.

        Raises:
            ValueError: There is no such file.
        """
        client = self.sagemaker_session.s3_client
        prefix = S3Uri.parse(self.model_data_prefix.rstrip("/"))
        if model_data_source.startswith("s3://"):
            source = S3Uri.parse(model_data_source)
            target = prefix / (model_data_path or source.key).strip("/")
            client.copy({"Bucket": source.bucket, "Key": source.key}, target.bucket, target.key)
            return str(target)
        path = Path(model_data_source.removeprefix("file://")).expanduser()
        if not path.is_file():
            raise ValueError(f"model_data_source={model_data_source!r}: no file {path.absolute()}, and no S3 URI")
        target = prefix / (model_data_path or path.name).strip("/")
        client.upload_file(str(path), target.bucket, target.key)
        return str(target)

    def list_models(self) -> Iterator[str]:
        """Return the names of the archives below the prefix, as ``target_model`` has them.

        Returns:
            Names, in their order.
        """
        prefix = S3Uri.parse(self.model_data_prefix)
        for key in self.sagemaker_session.list_s3_files(prefix.bucket, prefix.key):
            yield key.removeprefix(prefix.key)
