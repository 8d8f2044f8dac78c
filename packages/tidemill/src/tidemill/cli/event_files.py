"""The event files of one training job, copied to a directory of this process, from which TensorBoard reads them.

The copies outlive the originals: the files of a job's instance are removed when the job has ended.
"""

import os
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from tidemill.core.files import read_json
from tidemill.core.names import S3Uri
from tidemill.executors.event_files import event_files_of
from tidemill.instance.directory import InstanceDirectory
from tidemill.shim.beneath import open_beneath

if TYPE_CHECKING:
    from tidemill.cli.service import NamedService

_ENDED = ("Completed", "Failed", "Stopped")
_ARCHIVES = {"model.tar.gz": "model", "output.tar.gz": "output/data"}
"""Archives that contain the content of two of them when the job has ended."""
_MARK = "tfevents"  # part of the name of every event file


class EventFiles:
    """The event files of a job.

    Args:
        service: The service that runs the job.
        target: Directory for the copies.

    Attributes:
        has_ended: Whether the job had ended at the last `look`, so that no more files will come.
    """

    def __init__(self, service: "NamedService", job: str, target: Path) -> None:
        self.job = job
        self.has_ended = False
        self._service = service
        self._s3 = service.session.client("s3")
        self._target = target
        self._copied: dict[str, object] = {}
        self._instances: list[InstanceDirectory] = []
        self._is_through = False
        self._has_output_config = False

    @property
    def nothing_yet(self) -> str:
        """Message for a running job of which no event file was found."""
        if self._service.own is None and not self._has_output_config:
            return (
                f"{self.job} runs, and its event files are on the machine of its service; they are shown when the job"
                " has ended. With a TensorBoardOutputConfig they are in S3 while it runs"
            )
        return f"{self.job} has written nothing for TensorBoard so far; it is shown when it has"

    @property
    def nothing(self) -> str:
        """Error message for an ended job without event files."""
        if self._has_output_config:
            return f"{self.job} has ended, and there is no file in the directory of its TensorBoardOutputConfig"
        return (
            f"{self.job} has ended, and there is no event file of TensorBoard in its model.tar.gz or output.tar.gz. Let"
            " the script write to SM_OUTPUT_DATA_DIR; or give the job a TensorBoardOutputConfig, and let the script"
            " write to /opt/ml/output/tensorboard"
        )

    def look(self) -> bool:
        """Copy new data; return whether there is any file so far.

        Raises:
            ClientError: There is no such job. Errors are raised only while nothing has been copied.
        """
        if not self._is_through:
            try:
                self._look()
            except (BotoCoreError, ClientError, OSError):
                if not self._copied:
                    raise
                # The service is unreachable or a file was removed: keep the copies; the next call copies the rest.
        return bool(self._copied)

    def _look(self) -> None:
        # Before copying: if the job has ended by now, the copies below are complete.
        description = self._service.sagemaker.describe_training_job(TrainingJobName=self.job)
        self.has_ended = description["TrainingJobStatus"] in _ENDED
        config = description.get("TensorBoardOutputConfig")
        self._has_output_config = config is not None
        if config is not None:
            self._copy_prefix(S3Uri.parse(config["S3OutputPath"].rstrip("/")) / self.job / "tensorboard-output")
        elif self.has_ended:
            self._copy_archives(S3Uri.parse(description["OutputDataConfig"]["S3OutputPath"].rstrip("/")) / self.job)
        else:
            self._copy_live()
        self._is_through = self.has_ended

    def _copy_prefix(self, prefix: S3Uri) -> None:
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=prefix.bucket, Prefix=f"{prefix.key}/")
        for entry in (entry for page in pages for entry in page.get("Contents", ())):
            relative = entry["Key"].removeprefix(f"{prefix.key}/")
            if self._copied.get(relative) != entry["ETag"] and _is_path(relative):
                if (begin := self._begin(relative, entry["Size"])) < entry["Size"]:
                    part = self._s3.get_object(Bucket=prefix.bucket, Key=entry["Key"], Range=f"bytes={begin}-")
                    self._write(relative, part["Body"], begin=begin)
                self._copied[relative] = entry["ETag"]

    def _copy_live(self) -> None:
        for instance in self._running_instances():
            for file in event_files_of(instance):
                self._copy_live_file(instance.ml, file.name)

    def _copy_live_file(self, ml: Path, relative: str) -> None:
        try:
            fd = open_beneath(ml, relative)
        except OSError:
            return  # removed or replaced in the meantime
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            stamp = status.st_ino, status.st_size, status.st_mtime_ns
            if self._copied.get(relative) != stamp:
                begin = self._begin(relative, status.st_size)
                file.seek(begin)
                self._write(relative, file, begin=begin)
                self._copied[relative] = stamp

    def _running_instances(self) -> list[InstanceDirectory]:
        own = self._service.own
        if not self._instances and own is not None:
            every = InstanceDirectory.all_below(own.state.root)
            self._instances = [each for each in every if _job_of(each) == self.job]
        return self._instances

    def _copy_archives(self, output: S3Uri) -> None:
        for name, directory in _ARCHIVES.items():
            uri = output / "output" / name
            try:
                body = self._s3.get_object(Bucket=uri.bucket, Key=uri.key)["Body"]
            except ClientError as error:
                if error.response["Error"]["Code"] in ("NoSuchKey", "NoSuchBucket"):
                    continue
                raise
            with tarfile.open(fileobj=body, mode="r|gz") as archive:
                self._copy_members(archive, directory)

    def _copy_members(self, archive: tarfile.TarFile, directory: str) -> None:
        for member in archive:
            relative = f"{directory}/{member.name.removeprefix('./')}"
            if member.isfile() and _MARK in PurePosixPath(relative).name and _is_path(relative):
                begin = self._begin(relative, member.size)
                content: Any = archive.extractfile(member)
                content.read(begin)
                self._write(relative, content, begin=begin)
                self._copied[relative] = member.size

    def _begin(self, relative: str, size_bytes: int) -> int:
        """Return the first byte of a file to copy: event files only grow, so the rest is already copied."""
        target = self._target / relative
        if _MARK not in target.name or not target.exists():
            return 0
        copied_bytes = target.stat().st_size
        return copied_bytes if copied_bytes <= size_bytes else 0

    def _write(self, relative: str, source: IO[bytes], *, begin: int) -> None:
        """Write into the copy without replacing the file, which TensorBoard keeps open."""
        target = self._target / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("ab" if begin else "wb") as file:
            shutil.copyfileobj(source, file)


def _job_of(instance: InstanceDirectory) -> str | None:
    spec = read_json(instance.spec_file) or {}
    return spec.get("job_name") if spec.get("kind") == "training" else None


def _is_path(relative: str) -> bool:
    """Return whether a key, or a name in an archive, is a path below the directory of the copies."""
    segments = relative.split("/")
    return "\0" not in relative and not {"", ".", ".."} & set(segments)
