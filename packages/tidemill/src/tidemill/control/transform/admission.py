"""Check a CreateTransformJob request beyond AWS's model and the table of refused members."""

from collections.abc import Mapping
from typing import Any

from tidemill.control.admission import check_environment, check_s3_uri, refusal
from tidemill.control.transform.processing import FORMATS, Processing, format_of
from tidemill.core.transform import LARGEST_PAYLOAD_MB

_MAX_INSTANCES = 8


def check_transform_request(request: Mapping[str, Any]) -> None:
    """Refuse a request that cannot run as asked.

    Args:
        request: The members of CreateTransformJob.

    Raises:
        ValidationException: Names the member, the value and the allowed values.
    """
    source = request["TransformInput"]["DataSource"]["S3DataSource"]
    check_s3_uri(source["S3Uri"], "transformInput.dataSource.s3DataSource.s3Uri")
    check_s3_uri(request["TransformOutput"]["S3OutputPath"], "transformOutput.s3OutputPath")
    count = request["TransformResources"]["InstanceCount"]
    if count > _MAX_INSTANCES:
        raise refusal("transformResources.instanceCount", count, f"between 1 and {_MAX_INSTANCES}")
    check_environment(request.get("Environment", {}))
    _check_payload(request)
    _check_processing(request)


def check_transform_model(model: Mapping[str, Any]) -> None:
    """Refuse a multi-model container, which would need a TargetModel in each request.

    Args:
        model: The members of the model's CreateModel request.

    Raises:
        ValidationException: The model has Mode MultiModel.
    """
    container = model.get("PrimaryContainer") or model["Containers"][0]
    if container.get("Mode") == "MultiModel":
        raise refusal(
            "modelName", model["ModelName"], "it is of Mode MultiModel; create a model of the one archive to be used"
        )


def _check_payload(request: Mapping[str, Any]) -> None:
    size_mb, concurrent = request.get("MaxPayloadInMB", 6), request.get("MaxConcurrentTransforms") or 1
    if size_mb > LARGEST_PAYLOAD_MB:
        raise refusal("maxPayloadInMB", size_mb, f"at most {LARGEST_PAYLOAD_MB}")
    if size_mb * concurrent > LARGEST_PAYLOAD_MB:
        raise refusal(
            "maxConcurrentTransforms",
            concurrent,
            f"its product with MaxPayloadInMB, which is {size_mb}, is at most {LARGEST_PAYLOAD_MB}",
        )
    if size_mb == 0 and concurrent > 1:
        raise refusal("maxConcurrentTransforms", concurrent, "with MaxPayloadInMB 0 it is 1")


def _check_processing(request: Mapping[str, Any]) -> None:
    if not request.get("DataProcessing"):
        return
    try:
        processing = Processing.of_request(request)
    except ValueError as error:
        member, reason = error.args
        name = f"{member[0].lower()}{member[1:]}"
        raise refusal(f"dataProcessing.{name}", request["DataProcessing"][member], reason) from error
    content_type, split = processing.content_type, request["TransformInput"].get("SplitType", "None")
    needs_format = processing.joins or processing.filters_input
    if needs_format and not format_of(content_type):
        raise refusal(
            "transformInput.contentType",
            content_type,
            f"DataProcessing reads records of {', '.join(FORMATS)}; give one of them",
        )
    if needs_format and split not in ("None", "Line"):
        raise refusal("transformInput.splitType", split, "DataProcessing reads records of SplitType Line or None")
    if processing.joins and split == "Line" and request["TransformOutput"].get("AssembleWith", "None") != "Line":
        raise refusal(
            "transformOutput.assembleWith",
            request["TransformOutput"].get("AssembleWith"),
            "JoinSource Input with SplitType Line needs AssembleWith Line",
        )
