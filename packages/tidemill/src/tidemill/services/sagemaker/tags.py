"""Tags on the wire."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tidemill.control.hosting import ENDPOINT, ENDPOINT_CONFIG, MODEL
from tidemill.control.resources import (
    ARTIFACT,
    EXPERIMENT,
    MODEL_PACKAGE,
    MODEL_PACKAGE_GROUP,
    PIPELINE,
    PROCESSING_JOB,
    TRAINING_JOB,
    TRANSFORM_JOB,
    TRIAL,
    TRIAL_COMPONENT,
    TUNING_JOB,
)
from tidemill.errors import ValidationException
from tidemill.services.operations import Operations
from tidemill.services.sagemaker.resources import SageMakerResources
from tidemill.wire.exchange import Context


class TagHandlers(Operations):
    """List, add and delete the tags of an existing resource."""

    def __init__(self, resources: SageMakerResources) -> None:
        self._tags = resources.tags
        hosting, registry, experiments = resources.hosting, resources.registry, resources.experiments
        self._lookups: Mapping[str, Callable[[str], object]] = {
            TRAINING_JOB: resources.training.record,
            PROCESSING_JOB: resources.processing.record,
            TRANSFORM_JOB: resources.transform.record,
            PIPELINE: resources.pipelines.record,
            MODEL_PACKAGE: registry.package,
            MODEL_PACKAGE_GROUP: registry.group,
            TUNING_JOB: resources.tuning.record,
            **{kind: partial(experiments.record, kind) for kind in (EXPERIMENT, TRIAL, TRIAL_COMPONENT, ARTIFACT)},
            **{kind: partial(hosting.record, kind) for kind in (MODEL, ENDPOINT_CONFIG, ENDPOINT)},
        }

    async def list_tags(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {"Tags": _wire(self._tags.of(self._existing(request["ResourceArn"])))}

    async def add_tags(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {"Tags": _wire(await self._tags.add(self._existing(request["ResourceArn"]), request["Tags"]))}

    async def delete_tags(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._tags.remove(self._existing(request["ResourceArn"]), request["TagKeys"])
        return {}

    def _existing(self, arn: str) -> str:
        """Return the ARN after checking that its resource exists."""
        kind, _, name = arn.rpartition(":")[2].partition("/")
        lookup = self._lookups.get(kind)
        if lookup is None:
            allowed = ", ".join(sorted(self._lookups))
            raise ValidationException(f"Value {arn!r} at 'resourceArn' is not allowed: kinds with tags are {allowed}")
        lookup(name)
        return arn


def _wire(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
