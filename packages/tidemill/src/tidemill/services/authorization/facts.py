"""What is known of a request for the conditions of policies: its sender, its members, and the tags of its resources.

A key that this service cannot know for a permission is `Lack.UNDETERMINED`, so that no Deny is lost.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any
from urllib.parse import parse_qsl

from tidemill.control.bucket_rules import BucketRules
from tidemill.core.condition_keys import ACL, ENCRYPTION, ENCRYPTION_KEY
from tidemill.core.conditions import Fact, Facts, Lack
from tidemill.core.facts import RequestSender
from tidemill.core.names import ACCOUNT_ID, sagemaker_arn
from tidemill.core.policy import Permission
from tidemill.services.authorization.rule import Members
from tidemill.services.s3.copying import source_name
from tidemill.wire.exchange import Context
from tidemill.wire.protocols.models import service_model
from tidemill.wire.protocols.shapes import ITEM, VALUE, members

_OF_UPLOAD = ("CompleteMultipartUpload", "UploadPart", "UploadPartCopy")
_REQUEST_TAG, _RESOURCE_TAGS = "aws:requesttag/", ("aws:resourcetag/", "sagemaker:resourcetag/")
_TAG_KEYS = "aws:tagkeys"
_COPY_SOURCE = "s3:x-amz-copy-source"

_S3 = {
    ACL: "ACL",
    "s3:delimiter": "Delimiter",
    "s3:max-keys": "MaxKeys",
    "s3:prefix": "Prefix",
    "s3:x-amz-metadata-directive": "MetadataDirective",
    "s3:x-amz-storage-class": "StorageClass",
}
"""Member by key."""
_SAGEMAKER = {
    "sagemaker:instancetypes": ("InstanceType",),
    "sagemaker:keepaliveperiod": ("KeepAlivePeriodInSeconds",),
    "sagemaker:serverlessmaxconcurrency": ("ServerlessConfig.MaxConcurrency",),
    "sagemaker:serverlessmemorysize": ("ServerlessConfig.MemorySizeInMB",),
    "sagemaker:vpcsecuritygroupids": ("VpcConfig.SecurityGroupIds",),
    "sagemaker:vpcsubnets": ("VpcConfig.Subnets",),
}
"""By key, the ends of the paths of the members that have its values."""
_SAGEMAKER_KMS = {
    "sagemaker:outputkmskey": (
        *("OutputDataConfig.KmsKeyId", "TransformOutput.KmsKeyId", "OutputConfig.KmsKeyId"),
        *("ProcessingOutputConfig.KmsKeyId", "DataCaptureConfig.KmsKeyId"),
    ),
    "sagemaker:volumekmskey": ("VolumeKmsKeyId",),
}
"""The same for keys whose values are KMS keys."""
_SAGEMAKER_DEFAULTED: Mapping[str, tuple[str, str | Lack]] = {
    "sagemaker:intercontainertrafficencryption": ("EnableInterContainerTrafficEncryption", "false"),
    "sagemaker:networkisolation": ("EnableNetworkIsolation", "false"),
    "sagemaker:maxruntimeinseconds": ("StoppingCondition.MaxRuntimeInSeconds", Lack.UNDETERMINED),
}
"""By key, the end of the paths of its members, and the value where a request could have the member and does not."""
_OPTIONAL = ("NetworkConfig", "StoppingCondition")
"""Structures that a request may leave out, so that their members have their defaults."""
_OTHERS = {
    "application-autoscaling:scalable-dimension": ("application-autoscaling", "ScalableDimension"),
    "application-autoscaling:service-namespace": ("application-autoscaling", "ServiceNamespace"),
    "cloudwatch:namespace": ("cloudwatch", "Namespace"),
    "sts:externalid": ("sts", "ExternalId"),
    "sts:rolesessionname": ("sts", "RoleSessionName"),
}
"""Service and member by key."""


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What is known of one request.

    Attributes:
        tags_of: Returns the tags of a resource of SageMaker by its kind and name; None if they cannot be looked up.
        rules: Finds KMS keys; None if there are none.
    """

    request: Members
    context: Context
    sender: RequestSender
    tags_of: Callable[[str, str], Mapping[str, str]] | None
    rules: BucketRules | None

    def on(self, permission: Permission, *, arn: str = "") -> Facts:
        """Return what is known of the request for one of the permissions that it needs.

        Args:
            arn: Who counts as the sender: whoever opened a session stays subject to the own policy. Default: the key's.
        """
        facts = self if not arn else replace(self, sender=replace(self.sender, arn=arn))
        return partial(facts._fact, permission)

    def _fact(self, permission: Permission, key: str) -> Fact:
        service = permission.action.partition(":")[0]
        for prefix in _RESOURCE_TAGS:
            if key.startswith(prefix):
                return self._resource_tag(permission.resource, key.removeprefix(prefix))
        if key.startswith(_REQUEST_TAG) or key == _TAG_KEYS:
            return None if service == "iam" else self._request_tag(key)
        if key == "iam:passedtoservice":
            return ("sagemaker.amazonaws.com",) if permission.action == "iam:PassRole" else None
        if key.startswith("s3:"):
            return self._of_s3(key) if service == "s3" and self.context.service in ("s3", "tidemill") else None
        if key.startswith("sagemaker:"):
            return self._of_sagemaker(key) if service == "sagemaker" else None
        if key in _OTHERS:
            where, member = _OTHERS[key]
            return _texts([self.request.get(member)]) if self.context.service == where else None
        return self.sender.fact(key)

    def _resource_tag(self, resource: str, name: str) -> Fact:
        """Return the value of a tag of a resource. Tags of other services' resources are not looked up."""
        parts = resource.split(":", 5)
        if len(parts) < 6 or parts[2] in ("s3", "sts", "iam"):
            return None  # none of them has tags
        if parts[2] != "sagemaker" or self.tags_of is None:
            return Lack.UNDETERMINED
        kind, _, rest = parts[5].partition("/")
        return _tag(self.tags_of(kind, rest), name)

    def _request_tag(self, key: str) -> Fact:
        tags = _tags(self.request)
        if key != _TAG_KEYS:
            return _tag(tags, key.removeprefix(_REQUEST_TAG))
        removed = self.request.get("TagKeys") or self.request.get("tagKeys") or ()
        return (*tags, *removed) or None

    def _of_s3(self, key: str) -> Fact:
        if key == "s3:resourceaccount":
            return (ACCOUNT_ID,)
        if key in (ENCRYPTION, ENCRYPTION_KEY):
            if self.context.operation in _OF_UPLOAD:
                return Lack.WAIVED  # the encryption of an upload was checked when it began
            return self._encryption(key)
        if key == _COPY_SOURCE and self.request.get("CopySource"):
            # What is copied decides, not its spelling: the text may be quoted, begin with "/" and name a version.
            bucket, name, _ = source_name(self.request["CopySource"])
            return (f"{bucket}/{name}",)
        return _texts([self.request.get(_S3[key])]) if key in _S3 else None

    def _encryption(self, key: str) -> Fact:
        if key == ENCRYPTION:
            return _texts([self.request.get("ServerSideEncryption")])
        return self._kms_keys([self.request.get("SSEKMSKeyId")])

    def _kms_keys(self, keys: Sequence[str | None]) -> Fact:
        """Return KMS keys in both forms in which a policy may name them: as they were sent, and by ARN."""
        given = [key for key in keys if key]
        if given and self.rules is None:
            return Lack.UNDETERMINED
        arns = [self.rules.key_arn(key) for key in given] if self.rules is not None else []
        return (*given, *arns) or None

    def _of_sagemaker(self, key: str) -> Fact:
        service, operation = self.context.service, self.context.operation
        if service not in ("sagemaker", "sagemaker-runtime"):
            return None
        if key == "sagemaker:targetmodel":
            return _texts([self.request.get("TargetModel")])
        if key == "sagemaker:modelarn":
            return self._model_arns()
        if key in _SAGEMAKER_KMS:
            of_config = [self.request.get("KmsKeyId")] if operation == "CreateEndpointConfig" else []
            found = self._found(_SAGEMAKER_KMS[key])
            return self._kms_keys([*found, *(of_config if key == "sagemaker:volumekmskey" else ())])
        if key not in _SAGEMAKER_DEFAULTED:
            return _texts(self._found(_SAGEMAKER.get(key, ())))
        end, default = _SAGEMAKER_DEFAULTED[key]
        values = [each for path in _paths(service, operation, end) for each in _or_default(self.request, path, default)]
        return Lack.UNDETERMINED if Lack.UNDETERMINED in values else _texts(values)

    def _found(self, ends: Sequence[str]) -> list[Any]:
        paths = [path for end in ends for path in _paths(self.context.service, self.context.operation, end)]
        return [value for path in paths for value in _values(self.request, path)]

    def _model_arns(self) -> Fact:
        names = [self.request.get("ModelName")] if self.context.operation == "CreateTransformJob" else []
        if self.context.operation == "CreateEndpointConfig":
            names = [each.get("ModelName") for each in self.request.get("ProductionVariants", ())]
        return tuple(sagemaker_arn("model", name, region=self.context.region) for name in names if name) or None


def _texts(values: Sequence[Any]) -> tuple[str, ...] | None:
    """Return the values that are there as texts, or None."""
    texts = (str(value).lower() if isinstance(value, bool) else str(value) for value in values if value is not None)
    return tuple(texts) or None


def _tag(tags: Mapping[str, str], name: str) -> Fact:
    """Return the value of a tag, whose key is compared without case, as in IAM."""
    values = [value for key, value in tags.items() if key.casefold() == name]
    return Lack.UNDETERMINED if len(values) > 1 else tuple(values) or None


def _tags(request: Members) -> Mapping[str, str]:
    """Return the tags that a request sets, by key."""
    tagging = request.get("Tagging") or {}
    if isinstance(tagging, str):  # of an object
        return dict(parse_qsl(tagging, keep_blank_values=True))
    given = request.get("Tags") or request.get("tags") or tagging.get("TagSet") or ()
    if isinstance(given, Mapping):
        return {str(key): str(value) for key, value in given.items()}
    return {
        str(each.get("Key", each.get("TagKey", ""))): str(each.get("Value", each.get("TagValue", ""))) for each in given
    }


@lru_cache(maxsize=1024)
def _paths(service: str, operation: str, end: str) -> tuple[tuple[str, ...], ...]:
    """Return the paths of a request's members that end with the names in ``end``, none inside a map of the user."""
    shape = service_model(service).operation_model(operation).input_shape
    wanted = tuple(end.split("."))
    found = [place.path for place in members(shape) if VALUE not in place.path]
    return tuple(path for path in found if tuple(step for step in path if step != ITEM)[-len(wanted) :] == wanted)


def _values(value: Any, path: tuple[str, ...]) -> Iterator[Any]:
    if value is None:
        return
    if not path:
        yield from value if isinstance(value, list) else (value,)
    elif path[0] == ITEM:
        for each in value:
            yield from _values(each, path[1:])
    else:
        yield from _values(value.get(path[0]), path[1:])


def _or_default(request: Members, path: tuple[str, ...], default: str | Lack) -> Iterator[Any]:
    """Yield the values of a member, or its default for each structure that could have it and does not."""
    depth = 2 if len(path) > 1 and path[-2] in _OPTIONAL else 1
    for owner in _values(request, path[:-depth]):
        yield from list(_values(owner, path[-depth:])) or (default,)
