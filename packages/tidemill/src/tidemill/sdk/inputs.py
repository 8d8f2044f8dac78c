"""Channel configuration for `fit`, in place of plain S3 URIs."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.core.compatibility.sdk import refuse_arguments
from tidemill.core.names import S3Uri
from tidemill.sdk.variable import is_pipeline_variable

_DEFAULT_CHANNEL = "training"
_ALLOWED = {
    "distribution": ("FullyReplicated", "ShardedByS3Key"),
    "compression": ("Gzip", "None"),
    "record_wrapping": ("RecordIO", "None"),
    "s3_data_type": ("S3Prefix", "ManifestFile", "AugmentedManifestFile"),
    "input_mode": ("File", "Pipe", "FastFile"),
}


@dataclass(frozen=True)
class ShuffleConfig:
    """Shuffle the objects of a channel before each epoch.

    Attributes:
        seed: Seed of the order; the same seed gives the same order.
    """

    seed: int


class TrainingInput:
    """One channel: the location of its data and how the job reads it.

    Args:
        s3_data: An S3 URI, or ``file://PATH``, which `fit` uploads.
        distribution: ``FullyReplicated`` (every instance gets all objects) or ``ShardedByS3Key`` (each object goes to
            one instance). Default: ``FullyReplicated``.
        compression: ``Gzip`` decompresses the objects; Pipe mode only. Default: none.
        content_type: MIME type of the data.
        record_wrapping: ``RecordIO`` makes each object one record; Pipe mode only. Default: none.
        s3_data_type: ``S3Prefix``, ``ManifestFile`` or ``AugmentedManifestFile``. Default: ``S3Prefix``.
        instance_groups: Names of the instance groups that get the channel, sent as ``InstanceGroupNames``. Default:
            all.
        input_mode: ``File``, ``Pipe`` or ``FastFile``. Default: the job's.
        attribute_names: Attributes to read from each line of an augmented manifest.
        target_attribute_name: Refused, since training requests have no such member.
        shuffle_config: A `ShuffleConfig`: shuffles the objects before each epoch. Default: no shuffling.

    Raises:
        ValueError: A value is not allowed.

    Example:
        >>> TrainingInput("s3://bucket/train", compression="Gzip").config["CompressionType"]
        'Gzip'
    """

    def __init__(
        self,
        s3_data: str,
        distribution: str | None = None,
        compression: str | None = None,
        content_type: str | None = None,
        record_wrapping: str | None = None,
        s3_data_type: str = "S3Prefix",
        instance_groups: list[str] | None = None,
        input_mode: str | None = None,
        attribute_names: list[str] | None = None,
        target_attribute_name: str | None = None,
        shuffle_config: ShuffleConfig | None = None,
    ) -> None:
        refuse_arguments("TrainingInput", target_attribute_name=target_attribute_name)
        distribution = distribution or "FullyReplicated"
        _check("distribution", distribution)
        _check("compression", compression)
        _check("record_wrapping", record_wrapping)
        _check("s3_data_type", s3_data_type)
        _check("input_mode", input_mode)
        source = {"S3DataType": s3_data_type, "S3Uri": s3_data, "S3DataDistributionType": distribution}
        optional = {"InstanceGroupNames": instance_groups, "AttributeNames": attribute_names}
        members = {
            "CompressionType": compression,
            "ContentType": content_type,
            "RecordWrapperType": record_wrapping,
            "InputMode": input_mode,
            "ShuffleConfig": None if shuffle_config is None else {"Seed": shuffle_config.seed},
        }
        self.config: dict[str, Any] = {
            "DataSource": {"S3DataSource": {**source, **{k: v for k, v in optional.items() if v is not None}}},
            **{name: value for name, value in members.items() if value is not None},
        }


class s3_input(TrainingInput):  # noqa: N801  the name is the published one
    """`TrainingInput` under its name, and with its argument order, in version 1 of the SageMaker Python SDK.

    Args:
        s3_data: As for `TrainingInput`.
        distribution: As for `TrainingInput`.
        compression: As for `TrainingInput`.
        content_type: As for `TrainingInput`.
        record_wrapping: As for `TrainingInput`.
        s3_data_type: As for `TrainingInput`.
        input_mode: As for `TrainingInput`.
        attribute_names: As for `TrainingInput`.
        shuffle_config: As for `TrainingInput`.
    """

    def __init__(
        self,
        s3_data: str,
        distribution: str = "FullyReplicated",
        compression: str | None = None,
        content_type: str | None = None,
        record_wrapping: str | None = None,
        s3_data_type: str = "S3Prefix",
        input_mode: str | None = None,
        attribute_names: list[str] | None = None,
        shuffle_config: ShuffleConfig | None = None,
    ) -> None:
        super().__init__(
            s3_data,
            distribution=distribution,
            compression=compression,
            content_type=content_type,
            record_wrapping=record_wrapping,
            s3_data_type=s3_data_type,
            input_mode=input_mode,
            attribute_names=attribute_names,
            shuffle_config=shuffle_config,
        )


@dataclass(frozen=True)
class CreateModelInput:
    """What a step that creates a model needs besides the model.

    Attributes:
        instance_type: Instance type, from which the image is chosen. Default: ``local``.
        accelerator_type: Ignored: Elastic Inference no longer exists.
    """

    instance_type: str | None = None
    accelerator_type: str | None = None


@dataclass(frozen=True)
class TransformInput:
    """What a step that transforms a data set needs besides the transformer: arguments of `Transformer.transform`.

    Attributes:
        data: S3 URI of a prefix, or of a manifest.
        data_type: As for `Transformer.transform`.
        content_type: As for `Transformer.transform`.
        compression_type: As for `Transformer.transform`.
        split_type: As for `Transformer.transform`.
        input_filter: As for `Transformer.transform`.
        output_filter: As for `Transformer.transform`.
        join_source: As for `Transformer.transform`.
        model_client_config: As for `Transformer.transform`.
        batch_data_capture_config: As for `Transformer.transform`.
    """

    data: Any
    data_type: str = "S3Prefix"
    content_type: str | None = None
    compression_type: str | None = None
    split_type: str | None = None
    input_filter: str | None = None
    output_filter: str | None = None
    join_source: str | None = None
    model_client_config: Mapping[str, int] | None = None
    batch_data_capture_config: Any = None


def channels(inputs: Any, *, upload: Callable[[str], str]) -> list[dict[str, Any]]:
    """Return the ``InputDataConfig`` for the inputs of `fit`; ``upload`` uploads a local path and returns its S3 URI.

    Raises:
        ValueError: A channel is neither an S3 URI, nor ``file://``, nor channel configuration.
    """
    if inputs is None:
        return []
    named = inputs if isinstance(inputs, Mapping) else {_DEFAULT_CHANNEL: inputs}
    return [{**_config(name, value, upload), "ChannelName": name} for name, value in named.items()]


def _config(name: str, value: Any, upload: Callable[[str], str]) -> dict[str, Any]:
    if isinstance(value, (str, os.PathLike)) or is_pipeline_variable(value):
        uri: Any = f"file://{os.fspath(value)}" if isinstance(value, os.PathLike) else value
        value = TrainingInput(uri)
    config = getattr(value, "config", None)
    if not isinstance(config, dict):
        raise ValueError(
            f"channel {name!r}: {value!r} ({type(value).__name__}) is no input; expected an S3 URI, file://PATH,"
            " TrainingInput or s3_input"
        )
    source = config.get("DataSource", {}).get("S3DataSource")
    if source is None:  # no S3 source, e.g. a file system of AWS: the service checks it
        return config
    return {**config, "DataSource": {"S3DataSource": {**source, "S3Uri": _resolve(name, source["S3Uri"], upload)}}}


def _resolve(name: str, uri: Any, upload: Callable[[str], str]) -> Any:
    if is_pipeline_variable(uri):
        return uri
    if uri.startswith("file://"):
        return upload(uri.removeprefix("file://"))
    try:
        S3Uri.parse(uri)
    except ValueError as error:
        hint = f"; for a local path write file://{uri}" if "://" not in uri else ""
        raise ValueError(f"channel {name!r}: {error}{hint}") from None
    return uri


def _check(argument: str, value: Any) -> None:
    if value is not None and not is_pipeline_variable(value) and value not in _ALLOWED[argument]:
        raise ValueError(f"{argument}={value!r} is not allowed; expected one of {', '.join(_ALLOWED[argument])}")
