"""Takes over what an instance left: its archives into the object store, its directory into the bin."""

from pathlib import Path
from typing import Any

from tidemill.control.final_metrics import FoundMetrics, find_metrics
from tidemill.control.plan import TRAINING_LOG_GROUP
from tidemill.core.files import remove_unfinished, write_json
from tidemill.core.names import S3Uri
from tidemill.core.segments import stream_directory
from tidemill.core.training import TrainingJob
from tidemill.executors.base import Artifact, Executor, InstanceExit
from tidemill.store.objects import ObjectStore

__all__ = ["PUBLISHED_FILE", "RECORD_FILE", "ArtifactLost", "Publisher"]

PUBLISHED_FILE = "published.json"
RECORD_FILE = "record.json"


class ArtifactLost(Exception):
    """An archive cannot be stored; the text becomes the job's FailureReason."""


class Publisher:
    """Publishes the artifacts of ended jobs.

    Args:
        objects: Where they go.
        executor: Whose directories are cleaned up.
        jobs: Directory of all instances.
        logs: Root directory of the log segments.
    """

    def __init__(self, objects: ObjectStore, executor: Executor, *, jobs: Path, logs: Path) -> None:
        self._objects = objects
        self._executor = executor
        self._jobs = jobs
        self._logs = logs

    async def publish(self, job: TrainingJob, ended: InstanceExit) -> str:
        """Store model.tar.gz and output.tar.gz. Doing it again changes nothing.

        Returns:
            S3 URI of model.tar.gz, or the empty string where there is none.

        Raises:
            ArtifactLost: The bucket is gone, or the file is.
        """
        output = S3Uri.parse(job.request["OutputDataConfig"]["S3OutputPath"])
        published = {}
        for name, artifact in ended.artifacts.items():
            uri = output / job.name / "output" / f"{name}.tar.gz"
            await self._publish_one(uri, artifact)
            published[name] = str(uri)
        return published.get("model", "")

    async def final_metrics(self, job: TrainingJob) -> FoundMetrics:
        """Find the last values of the job's metrics in its log."""
        definitions = job.request["AlgorithmSpecification"].get("MetricDefinitions", ())
        return await find_metrics(stream_directory(self._logs, TRAINING_LOG_GROUP, job.log_streams[0]), definitions)

    async def _publish_one(self, uri: S3Uri, artifact: Artifact) -> None:
        stored = self._objects.head(uri.bucket, uri.key)
        if stored is not None and stored.sha256 == artifact.sha256:
            return
        if not self._objects.bucket_exists(uri.bucket):
            raise ArtifactLost(f"ClientError: cannot store {uri}: its bucket was deleted while the job ran")
        if not artifact.file.exists():
            raise ArtifactLost(f"InternalServerError: {artifact.file.name} of the job is gone and not at {uri}")
        await self._objects.adopt(
            uri.bucket,
            uri.key,
            artifact.file,
            sha256=artifact.sha256,
            md5=artifact.md5,
            size_bytes=artifact.size_bytes,
        )

    def clean_up(self, job: TrainingJob) -> None:
        """Remove what the ended job needs no more, keep what repeats it, and mark its directory as published."""
        self._executor.reap(job.job_id)
        directory = self._jobs / job.job_id
        if directory.is_dir():
            remove_unfinished(directory)  # of a service that was killed at this point
            write_json(directory / RECORD_FILE, _record(job))
            write_json(directory / PUBLISHED_FILE, {"version": 1, "name": job.name, "ended_ms": job.ended_ms})


def _record(job: TrainingJob) -> dict[str, Any]:
    """What repeats the job: its request, and by digest the environment, code and data that it ran with."""
    return {"version": 1, "name": job.name, "status": str(job.status), "request": job.request, **job.record}
