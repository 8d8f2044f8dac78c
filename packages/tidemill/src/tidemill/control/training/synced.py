"""Find the directories that are uploaded while a training job runs: checkpoints, TensorBoard and intermediate output.

The targets are SageMaker's. AWS's SDK v2 looks for TensorBoard's files below ``NAME/tensorboard-output``, and the
training toolkit writes intermediate output below ``NAME/output/intermediate``. Checkpoints are stored directly below
the prefix in the request, which all instances of a job and all jobs with that prefix share.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidemill.control.channels import reference
from tidemill.core.hyperparameters import decode
from tidemill.core.instances import ObjectReference
from tidemill.core.names import S3Uri
from tidemill.instance.spec import SyncedDirectory
from tidemill.store.objects.index import ObjectInfo
from tidemill.store.objects.store import ObjectStore

TENSORBOARD_DIRECTORY = "tensorboard-output"

_ML = "/opt/ml/"
_DEFAULT_LOCAL_PATH = "/opt/ml/output/tensorboard"
_NOT_OF_THE_SCRIPT = frozenset({"input", "code"})
_NO_CHECKPOINTS = _NOT_OF_THE_SCRIPT | {"model", "output", ".tidemill"}
_CHECKPOINTS = "checkpointConfig"
_CHECKPOINTS_LOCAL_PATH = "/opt/ml/checkpoints"
_OF_THE_SYSTEM = frozenset(
    ("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "sys", "usr")
)
_SHARED_WITH_THE_SYSTEM = frozenset(("home", "media", "mnt", "opt", "root", "srv", "tmp", "var"))
"""Directories that cannot be replaced themselves. Directories below them can, but in ``/var`` only new ones."""
_OF_VAR = frozenset(("backups", "cache", "lib", "local", "lock", "log", "mail", "opt", "run", "spool"))
_TENSORBOARD = "tensorBoardOutputConfig"
_INTERMEDIATE = "hyperParameters.sagemaker_s3_output"


def synced_directories(request: Mapping[str, Any]) -> tuple[SyncedDirectory, ...]:
    """Return the directories to upload for a CreateTrainingJob request.

    Raises:
        ValueError: A path or a URI cannot be used; the arguments are the member, its value and the reason.
    """
    name = request["TrainingJobName"]
    found: list[SyncedDirectory] = []
    for member, text in synced_uris(request):
        try:
            uri = S3Uri.parse(text.rstrip("/"))
        except ValueError as error:
            raise ValueError(member, text, str(error)) from error
        if member == _INTERMEDIATE:
            found.append(
                SyncedDirectory(path="output/intermediate", uri=str(uri / name / "output/intermediate"), whole=True)
            )
        elif member == f"{_CHECKPOINTS}.s3Uri":
            found.append(_checkpoints(request, uri))
        else:
            path = _relative(request["TensorBoardOutputConfig"].get("LocalPath") or _DEFAULT_LOCAL_PATH)
            found.append(SyncedDirectory(path=path, uri=str(uri / name / TENSORBOARD_DIRECTORY)))
    return tuple(found)


def synced_uris(request: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the request members that set the target of an uploaded directory, each with its S3 URI.

    Args:
        request: Members of CreateTrainingJob.
    """
    if "CheckpointConfig" in request:
        yield f"{_CHECKPOINTS}.s3Uri", request["CheckpointConfig"]["S3Uri"]
    tensorboard = request.get("TensorBoardOutputConfig", {})
    if tensorboard:
        yield f"{_TENSORBOARD}.s3OutputPath", tensorboard["S3OutputPath"]
    text = request.get("HyperParameters", {}).get("sagemaker_s3_output")
    output = decode({"": text})[""] if text else ""
    if output and not str(output).startswith("file://"):
        yield _INTERMEDIATE, str(output)


def restored_checkpoints(objects: ObjectStore, request: Mapping[str, Any]) -> Iterator[ObjectReference]:
    """Yield the objects below the prefix of a job's checkpoints.

    A script may have replaced a directory by a file, or a file by a directory. Nothing is deleted in the bucket, so it
    has both; then the newer of the two is restored.

    Args:
        request: Members of CreateTrainingJob.

    Yields:
        Objects; none without a CheckpointConfig.
    """
    config = request.get("CheckpointConfig")
    if config is None:
        return
    uri = S3Uri.parse(config["S3Uri"].rstrip("/"))
    prefix = f"{uri.key}/"
    found: dict[str, ObjectInfo] = {}
    for info in objects.list_all(uri.bucket, prefix):
        if not info.key.endswith("/"):
            found[info.key.removeprefix(prefix)] = info
    replaced: set[str] = set()
    for name, info in found.items():
        for parent in (name[:at] for at, character in enumerate(name) if character == "/"):
            if parent in found:
                replaced.add(parent if found[parent].modified_ms < info.modified_ms else name)
    for name, info in found.items():
        if name not in replaced:
            yield reference(info, name=name)


def _checkpoints(request: Mapping[str, Any], uri: S3Uri) -> SyncedDirectory:
    if not uri.key:
        text = request["CheckpointConfig"]["S3Uri"]
        raise ValueError(f"{_CHECKPOINTS}.s3Uri", text, f"name a prefix of the bucket, e.g. {uri}checkpoints")
    text = request["CheckpointConfig"].get("LocalPath") or _CHECKPOINTS_LOCAL_PATH
    first, *below = text.rstrip("/").split("/")
    clean = first == "" and below and not {"", ".", ".."} & set(below) and "\0" not in text
    of_ml = clean and below[:2] == ["opt", "ml"]
    if of_ml and len(below) > 2 and below[2] not in _NO_CHECKPOINTS:
        return SyncedDirectory(path="/".join(below[2:]), uri=str(uri), whole=True, restored=True)
    if clean and not of_ml and not _shadows_the_system(below):
        at = "/" + "/".join(below)
        return SyncedDirectory(path="checkpoints", uri=str(uri), whole=True, restored=True, mounted_at=at)
    raise ValueError(
        f"{_CHECKPOINTS}.localPath",
        text,
        "expected a directory below /opt/ml, not in its input, code, model or output, e.g. /opt/ml/checkpoints; or one"
        " elsewhere that hides nothing of the system, e.g. /checkpoints or /tmp/checkpoints",
    )


def _shadows_the_system(segments: Sequence[str]) -> bool:
    """Return whether a directory in the place of an absolute path would hide files that the system needs."""
    first, *below = segments
    if first in _OF_THE_SYSTEM or (first in _SHARED_WITH_THE_SYSTEM and not below):
        return True
    return first == "var" and (below[0] in _OF_VAR or below == ["tmp"])


def _relative(local_path: str) -> str:
    """Return a path relative to /opt/ml, e.g. ``output/tensorboard`` for ``/opt/ml/output/tensorboard``."""
    segments = [segment for segment in local_path.removeprefix(_ML).split("/") if segment]
    clean = local_path.startswith(_ML) and segments and not {".", ".."} & set(segments)
    if not clean or segments[0] in _NOT_OF_THE_SCRIPT or "\0" in local_path:
        raise ValueError(
            f"{_TENSORBOARD}.localPath",
            local_path,
            "expected a directory below /opt/ml, not in its input or code, e.g. /opt/ml/output/tensorboard",
        )
    return "/".join(segments)
