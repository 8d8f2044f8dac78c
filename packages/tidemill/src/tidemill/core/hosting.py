"""Models, endpoint configurations and endpoints.

An endpoint has a deployment that gets requests (``serving``) and, while it is created or updated, one that is being
started (``starting``). A deployment has production variants, and a variant has instances. Two deployments may share
instances: a deployment that differs only in weights and counts keeps the instances that it still needs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from tidemill.core.documents import Document, parsed

_HEALTHY_WITHIN_S = 15 * 60


class EndpointStatus(StrEnum):
    """The part of SageMaker's EndpointStatus values that tidemill uses."""

    CREATING = "Creating"
    UPDATING = "Updating"
    IN_SERVICE = "InService"
    FAILED = "Failed"
    DELETING = "Deleting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource(Document):
    """A model or an endpoint configuration: a name and the request that created it.

    Attributes:
        container: Of a model that names a model package: its container with what the package described at that time.
    """

    name: str
    arn: str
    request: Mapping[str, Any]
    created_ms: int
    container: Mapping[str, Any] | None = None

    @property
    def served(self) -> Mapping[str, Any]:
        """The request of a model, with the container that its servers run."""
        if self.container is None:
            return self.request
        others = {name: value for name, value in self.request.items() if name != "Containers"}
        return {**others, "PrimaryContainer": self.container}


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One server of a variant.

    Attributes:
        job_id: Hexadecimal name of its directory, unique for each instance.
        log_stream: ``VARIANT/i-ID`` in the endpoint's log group.
        created_ms: Time of its creation, in milliseconds since the epoch.
        index: 0, except in endpoints of earlier versions, whose instances shared one ``job_id``.
        ready: Whether it has answered /ping with 200 at least once.
    """

    job_id: str
    log_stream: str
    created_ms: int
    index: int = 0
    ready: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """Key that identifies the instance."""
        return self.job_id, self.index


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A production variant.

    It holds a copy of its model's definition: as on SageMaker, deleting the model later does not affect it.

    Attributes:
        request: The ProductionVariant, by botocore's member names.
        model: The CreateModel request of its model, as `Resource.served`.
        weight: Its share of the requests is ``weight`` divided by the sum over all variants.
        count: Desired number of instances.
        instances: Existing instances; fewer than ``count`` after one died, until it is replaced.
    """

    request: Mapping[str, Any]
    model: Mapping[str, Any]
    weight: float = 1.0
    count: int = 1
    instances: tuple[Instance, ...] = ()

    @property
    def name(self) -> str:
        """VariantName."""
        return str(self.request["VariantName"])

    @property
    def container(self) -> Mapping[str, Any]:
        """The container definition of the model, by botocore's member names."""
        return self.model.get("PrimaryContainer") or self.model["Containers"][0]

    @property
    def is_multi_model(self) -> bool:
        """Whether each request names one of the archives below ModelDataUrl as its model (Mode MultiModel)."""
        return self.container.get("Mode") == "MultiModel"

    @property
    def serverless(self) -> Mapping[str, Any] | None:
        """Its ServerlessConfig, or None if it is not serverless."""
        return self.request.get("ServerlessConfig")

    @property
    def healthy_within_s(self) -> int:
        """Seconds within which a new instance must answer /ping."""
        return int(self.request.get("ContainerStartupHealthCheckTimeoutInSeconds", _HEALTHY_WITHIN_S))

    @property
    def missing(self) -> int:
        """Number of instances to add."""
        return self.count - len(self.instances)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """An endpoint configuration that is running.

    Attributes:
        variants: The variants, in the order of the configuration.
        begun_ms: Time of the request, in milliseconds since the epoch.
        capture: Its DataCaptureConfig, or None if nothing is captured.
        asynchronous: Its AsyncInferenceConfig, or None if it answers requests directly.
        limit_s: Time limit for the start of all its instances in seconds, if the update has one; else None.
    """

    config_name: str
    variants: tuple[Variant, ...]
    begun_ms: int
    capture: Mapping[str, Any] | None = None
    limit_s: int | None = None
    asynchronous: Mapping[str, Any] | None = None

    @property
    def instances(self) -> tuple[Instance, ...]:
        """The instances of all variants."""
        return tuple(instance for variant in self.variants for instance in variant.instances)

    @property
    def complete(self) -> bool:
        """Whether every variant has all its instances, and all instances have answered."""
        return all(not each.missing for each in self.variants) and all(each.ready for each in self.instances)

    def find(self, name: str) -> Variant | None:
        """Return the variant of that name, or None.

        Args:
            name: Name of the variant.
        """
        return next((each for each in self.variants if each.name == name), None)

    def with_instances(self, change: Callable[[Variant], tuple[Instance, ...]]) -> "Deployment":
        """Return a copy with the instances that ``change`` returns for each variant.

        Args:
            change: Gets a variant and returns its instances.
        """
        return replace(self, variants=tuple(replace(each, instances=change(each)) for each in self.variants))

    def without(self, instance: Instance) -> "Deployment":
        """Return a copy without an instance.

        Args:
            instance: The instance; compared by key.
        """
        return self.with_instances(lambda variant: tuple(i for i in variant.instances if i.key != instance.key))

    def with_ready(self, instance: Instance) -> "Deployment":
        """Return a copy in which an instance is ready.

        Args:
            instance: The instance; compared by key.
        """
        return self.with_instances(
            lambda variant: tuple(replace(i, ready=i.ready or i.key == instance.key) for i in variant.instances)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Document):
    """An endpoint with its serving and starting deployments and its retiring instances.

    Attributes:
        endpoint_id: Hexadecimal id, which distinguishes it from earlier and later endpoints of its name.
        serving: The deployment that gets the requests; None until the first deployment has started.
        starting: The deployment that takes over when all its instances answer; None if none is starting.
        retiring: Instances that get no more requests; each is removed once it has ended and is cleaned up.
        deployment_config: The DeploymentConfig of the last update or creation.
        failure_reason: Why it failed, or why its last update was rolled back; else empty.
        waits: By job id of an instance: why it waits for a machine of a cluster. None if no instance does.
    """

    name: str
    arn: str
    endpoint_id: str
    created_ms: int
    serving: Deployment | None = None
    starting: Deployment | None = None
    retiring: tuple[Instance, ...] = ()
    status: EndpointStatus = EndpointStatus.CREATING
    failure_reason: str = ""
    deployment_config: Mapping[str, Any] = field(default_factory=dict)
    waits: Mapping[str, str] | None = None

    @property
    def config_name(self) -> str:
        """Name of the serving configuration, or of the starting one if none serves."""
        deployment = self.serving or self.starting
        return deployment.config_name if deployment else ""

    @property
    def deployments(self) -> tuple[Deployment, ...]:
        """The serving and the starting deployment, if any."""
        return tuple(each for each in (self.serving, self.starting) if each is not None)

    @property
    def instances(self) -> tuple[Instance, ...]:
        """All instances that may have a process: serving, starting and retiring ones, each once."""
        active = (instance for deployment in self.deployments for instance in deployment.instances)
        return tuple({each.key: each for each in (*active, *self.retiring)}.values())

    def deployment_of(self, instance: Instance) -> Deployment | None:
        """Return the deployment for which an instance was started; None for a retired one.

        Args:
            instance: The instance; compared by key.
        """
        with_it = (each for each in self.deployments if instance.key in {other.key for other in each.instances})
        return next(with_it, None)

    @property
    def owns(self) -> frozenset[str]:
        """The names of its instances' directories."""
        return frozenset(each.job_id for each in self.instances)

    def promoted(self) -> "Endpoint":
        """Return the endpoint with the starting deployment serving; instances of the old one that it lacks retire."""
        if self.starting is None:
            return self
        return replace(
            self,
            serving=self.starting,
            starting=None,
            retiring=self.retiring + _beyond(self.serving, self.starting),
            status=EndpointStatus.IN_SERVICE,
            failure_reason="",
        )

    def rolled_back(self, reason: str) -> "Endpoint":
        """Return the endpoint without the starting deployment. If no deployment serves, the endpoint has failed.

        Args:
            reason: Shown as FailureReason; cut to 1,024 characters.
        """
        if self.serving is None:
            return self.failed(reason)
        return replace(
            self,
            starting=None,
            retiring=self.retiring + _beyond(self.starting, self.serving),
            status=EndpointStatus.IN_SERVICE,
            failure_reason=reason[:1024],
        )

    def failed(self, reason: str) -> "Endpoint":
        """Return the failed endpoint: nothing serves, and nothing is retried. Its configuration is still shown.

        Args:
            reason: Shown as FailureReason.
        """
        leaving = {each.key for each in self.retiring}
        return replace(
            self,
            serving=self.serving and self.serving.with_instances(lambda variant: ()),
            starting=self.starting and self.starting.with_instances(lambda variant: ()),
            retiring=self.retiring + tuple(each for each in self.instances if each.key not in leaving),
            status=EndpointStatus.FAILED,
            failure_reason=reason[:1024],
        )

    def retired(self, instance: Instance) -> "Endpoint":
        """Return the endpoint with an instance retired: it gets no more requests, and its variant lacks an instance.

        Args:
            instance: The instance; compared by key.
        """
        if instance.key in {each.key for each in self.retiring}:
            return self
        return replace(
            self,
            serving=self.serving and self.serving.without(instance),
            starting=self.starting and self.starting.without(instance),
            retiring=(*self.retiring, instance),
        )

    def resized(self, name: str, count: int) -> "Endpoint":
        """Return the endpoint with another instance count of a serving serverless variant; surplus instances retire.

        Args:
            count: The new number of instances.

        Returns:
            The same endpoint if nothing changes.
        """
        variant = self.serving.find(name) if self.serving else None
        if self.serving is None or variant is None or variant.count == count:
            return self
        sized = replace(variant, count=count, instances=variant.instances[:count])
        variants = tuple(sized if each.name == name else each for each in self.serving.variants)
        serving = replace(self.serving, variants=variants)
        return replace(self, serving=serving, retiring=self.retiring + _beyond(self.serving, serving))

    def made_ready(self, instance: Instance) -> "Endpoint":
        """Return the endpoint after an instance has answered.

        Args:
            instance: The instance; compared by key.
        """
        return replace(
            self,
            serving=self.serving and self.serving.with_ready(instance),
            starting=self.starting and self.starting.with_ready(instance),
        )

    def waiting(self, instance: Instance, reason: str) -> "Endpoint":
        """Return the endpoint while an instance waits for a machine, or when it waits no longer.

        Args:
            instance: The instance.
            reason: Why it waits; empty if it does not.
        """
        others = {job_id: text for job_id, text in (self.waits or {}).items() if job_id != instance.job_id}
        return replace(self, waits={**others, **({instance.job_id: reason} if reason else {})} or None)

    def cleared(self, instance: Instance) -> "Endpoint":
        """Return the endpoint without a retired instance that has ended.

        Args:
            instance: The instance; compared by key.
        """
        left = tuple(each for each in self.retiring if each.key != instance.key)
        return replace(self.waiting(instance, ""), retiring=left)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Endpoint":
        """Parse the output of `to_document`, of this version or of versions before endpoint updates.

        Args:
            document: A value of JSON.
        """
        return parsed(cls, document if "endpoint_id" in document else _of_first_form(document))


def _beyond(old: Deployment | None, new: Deployment | None) -> tuple[Instance, ...]:
    """Return the instances of ``old`` that ``new`` does not have."""
    kept = {each.key for each in new.instances} if new else set()
    return tuple(each for each in old.instances if each.key not in kept) if old else ()


def _of_first_form(document: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a document from before endpoint updates: one variant, whose instances shared one ``instance_id``."""
    serves = document["status"] in (EndpointStatus.IN_SERVICE, EndpointStatus.DELETING)
    instances = [
        {
            "job_id": document["instance_id"],
            "log_stream": stream,
            "created_ms": document["created_ms"],
            "index": index,
            "ready": serves,
        }
        for index, stream in enumerate(document["log_streams"])
    ]
    variant = {
        "request": document["variant"],
        "model": document["model"],
        "weight": document["variant"].get("InitialVariantWeight", 1.0),
        "count": len(instances),
        "instances": instances,
    }
    deployment = {
        "config_name": document["config_name"],
        "variants": [variant],
        "begun_ms": document["created_ms"],
    }
    return {
        **{name: document[name] for name in ("name", "arn", "created_ms", "status", "failure_reason")},
        "endpoint_id": document["instance_id"],
        "serving": deployment if serves else None,
        "starting": None if serves else deployment,
        "retiring": [],
    }
