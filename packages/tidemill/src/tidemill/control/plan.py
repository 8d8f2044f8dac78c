"""Create the specs of model servers, of endpoints and of batch transform jobs, and what all specs have in common."""

from collections.abc import Mapping
from typing import Any

from tidemill.control.channels import DataMissing, reference
from tidemill.control.server_keys import ServerVariables
from tidemill.core.compatibility import keys_named
from tidemill.core.frameworks import Frameworks
from tidemill.core.hosting import Endpoint, Instance, Variant
from tidemill.core.images import parse_image
from tidemill.core.instance_types import OFFERING_SHAPES, unoffered
from tidemill.core.instances import InstanceRef, ObjectReference, StreamName
from tidemill.core.limits import LimitPolicy
from tidemill.core.names import S3Uri
from tidemill.core.transform import MEBIBYTE, TransformJob
from tidemill.instance.spec import InstanceSpec
from tidemill.store.objects.store import ObjectStore
from tidemill.wire.protocols.models import service_model

TRANSFORM_LOG_GROUP = "/aws/sagemaker/TransformJobs"
ENDPOINT_LOG_GROUP = "/aws/sagemaker/Endpoints/"
_DRAIN_S = 40.0
_ASYNC_TIMEOUT_S = "3600"
_USER_CODE_LIMITS = ("SAGEMAKER_MODEL_SERVER_TIMEOUT", "SAGEMAKER_GUNICORN_TIMEOUT_SECONDS")
_MULTI_MODEL = "SAGEMAKER_MULTI_MODEL"
_SUBMIT_DIRECTORY = "SAGEMAKER_SUBMIT_DIRECTORY"


class ServerPlanner:
    """Plans the instances that serve models. It only reads: launching is the executor's work.

    Args:
        objects: Stores models and code.
        region: Value of AWS_REGION in the instances.
        grace_s: Seconds between SIGTERM and SIGKILL when an instance is stopped.
        limits: Determines the limits of all instances. Default: no limits.
        frameworks: Selects the environments. Default: without the setting ``images``.
    """

    def __init__(
        self,
        objects: ObjectStore,
        *,
        region: str,
        grace_s: float,
        limits: LimitPolicy | None = None,
        frameworks: Frameworks | None = None,
    ) -> None:
        self._objects = objects
        self._region = region
        self._grace_s = grace_s
        self._limits = limits or LimitPolicy()
        self._frameworks = frameworks or Frameworks()

    def plan_endpoint(
        self, endpoint: Endpoint, variant: Variant, instance: Instance, *, variables: ServerVariables
    ) -> InstanceSpec:
        """Return the spec of an instance of a variant.

        Args:
            variables: Address and keys of the service; environment variables of the model win.

        Raises:
            DataMissing: The model archive does not exist.
        """
        return self._server(
            variant.container,
            variables={
                **variables.server,
                **self._endpoint_variables(variant, asynchronous=_is_asynchronous(endpoint, instance)),
            },
            ref=InstanceRef(instance.job_id, instance.index),
            kind="endpoint",
            job_name=endpoint.name,
            hosts=tuple(f"algo-{i + 1}" for i in range(instance.index + 1)),  # servers do not contact each other
            log=StreamName(ENDPOINT_LOG_GROUP + endpoint.name, instance.log_stream),
            instance_type=variant.request.get("InstanceType", ""),
            agent_variables=self._agent_variables(variables),
        )

    def plan_transform(self, job: TransformJob, index: int, *, variables: ServerVariables) -> InstanceSpec:
        """Return the spec of one instance of a transform job: a model server, as for an endpoint.

        Args:
            index: Index of the instance; 0 is ``algo-1``.
            variables: Address and keys of the service; environment variables of the model win.

        Raises:
            DataMissing: The model archive does not exist.
        """
        return self._server(
            job.container,
            variables={**variables.server, **self._transform_variables(job)},
            ref=InstanceRef(job.job_id, index),
            kind="transform",
            job_name=job.name,
            hosts=tuple(f"algo-{i + 1}" for i in range(len(job.log_streams))),
            log=StreamName(TRANSFORM_LOG_GROUP, job.log_streams[index]),
            notices=key_notices("CreateTransformJob", job.request) if index == 0 else (),
            instance_type=job.request["TransformResources"].get("InstanceType", ""),
            agent_variables=self._agent_variables(variables),
        )

    def target_archive(self, variant: Variant, target: str) -> ObjectReference:
        """Return the archive of one model of a multi-model variant.

        Args:
            target: TargetModel of a request: the part of the archive's key after ModelDataUrl.

        Raises:
            DataMissing: The archive does not exist.
        """
        return self._archive(variant.container["ModelDataUrl"].removesuffix("/") + "/" + target.removeprefix("/"))

    def _archive(self, url: str) -> ObjectReference:
        uri = S3Uri.parse(url)
        info = self._objects.head(uri.bucket, uri.key)
        if info is None:
            raise DataMissing(f"ClientError: the model archive {uri} does not exist")
        return reference(info, name="model.tar.gz")

    def _endpoint_variables(self, variant: Variant, *, asynchronous: bool) -> dict[str, str]:
        patience = dict.fromkeys(_USER_CODE_LIMITS, _ASYNC_TIMEOUT_S) if asynchronous else {}
        variables = {**patience, **region_variables(self._region), **variant.container.get("Environment", {})}
        variables["AWS_REGION"] = self._region
        variables.pop(_MULTI_MODEL, None)  # the container's Mode decides
        return variables | ({_MULTI_MODEL: "true"} if variant.is_multi_model else {})

    def _transform_variables(self, job: TransformJob) -> dict[str, str]:
        """Return the environment variables of model and job, and those that SageMaker sets for transform jobs."""
        timeout_s = job.request.get("ModelClientConfig", {}).get("InvocationsTimeoutInSeconds", 600)
        variables = {
            # The job waits that long for an answer, so user code may take as long, unless the user sets other limits.
            **dict.fromkeys(_USER_CODE_LIMITS, str(timeout_s)),
            **region_variables(self._region),
            **job.container.get("Environment", {}),
            **job.request.get("Environment", {}),
            "AWS_REGION": self._region,
            "SAGEMAKER_BATCH": "true",
            "SAGEMAKER_BATCH_STRATEGY": job.strategy,
            "SAGEMAKER_MAX_PAYLOAD_IN_MB": str(job.max_payload_bytes // MEBIBYTE),
            "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": str(job.max_concurrent),
        }
        variables.pop(_MULTI_MODEL, None)  # a transform job has one model
        return variables

    def _agent_variables(self, variables: ServerVariables) -> Mapping[str, str]:
        return {**region_variables(self._region), **variables.agent} if variables.agent else {}

    def _server(
        self,
        container: Mapping[str, Any],
        *,
        variables: Mapping[str, str],
        instance_type: str,
        notices: tuple[str, ...] = (),
        **place: Any,
    ) -> InstanceSpec:
        """Return the spec of an instance that serves the model of a container definition."""
        image = parse_image(container.get("Image", ""))
        code = variables.get(_SUBMIT_DIRECTORY, "") if image.serves_python_handlers else ""
        model = None if _MULTI_MODEL in variables else self._archive(container["ModelDataUrl"])
        try:
            selection = self._frameworks.of_serving(container.get("Image", ""))
        except ValueError as error:  # an earlier version of tidemill admitted it unchecked
            raise DataMissing(f"ClientError: {error}") from error
        return InstanceSpec(
            **place,
            framework_version=selection.framework.version,
            notices=(*selection.notices, *unoffered_notices(instance_type), *notices),
            limits=self._limits.of(instance_type, volume_gib=None),
            instance_types=(instance_type,) * len(place["hosts"]) if instance_type else (),
            serves="python" if image.serves_python_handlers else "tensorflow-serving",
            variables=variables,
            code=source_of(self._objects, code, name=_SUBMIT_DIRECTORY),
            model=model,
            grace_s=min(self._grace_s, _DRAIN_S),
        )


def region_variables(region: str) -> dict[str, str]:
    """Return the environment variables from which AWS's SDKs take the region."""
    return {"AWS_REGION": region, "AWS_DEFAULT_REGION": region, "AWS_EC2_METADATA_DISABLED": "true"}


def source_of(objects: ObjectStore, text: str, *, name: str) -> ObjectReference | None:
    """Return the submitted code; None if ``text`` is not an S3 URI.

    Args:
        text: The value of the hyperparameter or variable.
        name: Its name, for messages; in capitals that of an endpoint.

    Raises:
        DataMissing: The code does not exist.
    """
    if not text.startswith("s3://"):
        return None
    try:
        uri = S3Uri.parse(text)
    except ValueError as error:
        raise DataMissing(f"ClientError: {name}: {error}") from error
    info = objects.head(uri.bucket, uri.key)
    if info is None:
        what = "training code" if name.islower() else "code of the endpoint"
        raise DataMissing(f"ClientError: the {what} {uri} does not exist; upload it before creating the job")
    return reference(info, name="sourcedir.tar.gz")


def key_notices(operation: str, request: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the line for a job's log that names the KMS keys in its request; none without keys."""
    named = [f"{member} {key}" for member, key in keys_named("sagemaker", operation, request).items()]
    if not named:
        return ()
    return (
        f"tidemill: nothing is encrypted with {' or '.join(named)}: tidemill records keys and has none. Keep the state"
        ' directory on an encrypted disk, or set encryption = "refuse" to refuse such requests',
    )


def unoffered_notices(*instance_types: str) -> tuple[str, ...]:
    """Return a line for the log for each instance type that AWS does not offer."""
    model = service_model("sagemaker")
    offered = {each for shape in OFFERING_SHAPES for each in model.shape_for(shape).metadata["enum"]}
    lines = (unoffered(each, offered=offered) for each in dict.fromkeys(instance_types))
    return tuple(f"tidemill: {line}" for line in lines if line)


def _is_asynchronous(endpoint: Endpoint, instance: Instance) -> bool:
    """Return whether an instance belongs to a deployment with an AsyncInferenceConfig."""
    deployment = endpoint.deployment_of(instance)
    return deployment is not None and deployment.asynchronous is not None
