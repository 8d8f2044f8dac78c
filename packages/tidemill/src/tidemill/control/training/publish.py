"""Publish an ended job: its archives to the object store, and the record needed to repeat it to the job archive."""

from collections.abc import Sequence
from pathlib import Path

from tidemill.control.bucket_rules import BucketRules
from tidemill.control.job_archive import JobArchive
from tidemill.control.training.final_metrics import FoundMetrics, find_metrics, latest, with_statistics
from tidemill.control.training.plan import instances_of
from tidemill.core.names import S3Uri
from tidemill.core.segments import SegmentWriter, create_stream, stream_directory
from tidemill.core.training import TrainingJob
from tidemill.executors.base import Executor
from tidemill.instance.status import Artifact, InstanceExit
from tidemill.store.objects.store import ObjectStore


class ArtifactLost(Exception):
    """An archive cannot be stored; the text becomes the job's FailureReason."""


class Publisher:
    """Publishes the artifacts of ended jobs.

    Args:
        executor: Provides the artifacts, and removes the files of a job.
        archive: Stores the record of each job.
        logs: Root directory of the log segments.
        rules: Finds what S3 shows of the encryption of the artifacts. Policies of buckets do not apply to them.
    """

    def __init__(
        self, objects: ObjectStore, executor: Executor, *, archive: JobArchive, logs: Path, rules: BucketRules
    ) -> None:
        self._objects = objects
        self._executor = executor
        self._archive = archive
        self._logs = logs
        self._rules = rules

    async def publish(self, job: TrainingJob, ended: InstanceExit) -> str:
        """Store model.tar.gz and output.tar.gz. Repeating it changes nothing.

        Args:
            ended: Result of the job's instance ``algo-1``, with its archives.

        Returns:
            S3 URI of model.tar.gz, or the empty string without a model. A processing job has no archives.

        Raises:
            ArtifactLost: The bucket or the archive does not exist any more.
        """
        published = {}
        for name, artifact in ended.artifacts.items():
            uri = S3Uri.parse(job.request["OutputDataConfig"]["S3OutputPath"]) / job.name / "output" / f"{name}.tar.gz"
            await self._publish_one(job, uri, name, artifact)
            published[name] = str(uri)
        return published.get("model", "")

    def log(self, job: TrainingJob, lines: Sequence[str]) -> None:
        """Append lines to the log of ``algo-1``, whose instance has ended.

        Args:
            lines: Without LF.
        """
        if lines:
            with SegmentWriter(create_stream(self._logs, job.log_group, job.log_streams[0])) as writer:
                writer.write_many(line.encode(errors="replace") for line in lines)

    async def final_metrics(self, job: TrainingJob) -> FoundMetrics:
        """Find the last values of the job's metrics in its log streams.

        Returns:
            Metrics of all instances, merged; with the statistics of all values if the job has an experiment, whose
            trial component shows them.
        """
        definitions = job.request["AlgorithmSpecification"].get("MetricDefinitions", ())
        directories = [stream_directory(self._logs, job.log_group, stream) for stream in job.log_streams]
        found = latest([await find_metrics(directory, definitions) for directory in directories])
        return await with_statistics(found, directories, definitions) if job.request.get("ExperimentConfig") else found

    async def _publish_one(self, job: TrainingJob, uri: S3Uri, name: str, artifact: Artifact) -> None:
        stored = self._objects.head_if_sound(uri.bucket, uri.key)
        if stored is not None and stored.sha256 == artifact.sha256:
            return
        if not self._objects.bucket_exists(uri.bucket):
            raise ArtifactLost(f"ClientError: cannot store {uri}: its bucket was deleted while the job ran")
        publication = self._executor.publication(instances_of(job)[0], name)
        if publication is None:
            raise ArtifactLost(f"InternalServerError: {name}.tar.gz of the job is gone and not at {uri}")
        await self._objects.adopt(
            uri.bucket,
            uri.key,
            publication,
            sha256=artifact.sha256,
            md5=artifact.md5,
            size_bytes=artifact.size_bytes,
            headers=self._rules.members_of(uri.bucket, job.request["OutputDataConfig"].get("KmsKeyId")),
            publisher=job.scope.publisher,
        )

    def clean_up(self, job: TrainingJob) -> None:
        """Remove the files of the ended job, keep the record needed to repeat it, and mark the job as finished.

        A job whose files could not be removed is not marked, so that the next start of the service tries again.

        Args:
            job: The job.
        """
        launched = any(self._executor.observe(ref).launched for ref in instances_of(job))
        removed = self._executor.reap(job.job_id)
        if launched:
            # To repeat the job: its request, and digests of the environment, code and data that it ran with.
            record = {"name": job.name, "status": str(job.status), "request": job.request, **job.record}
            self._archive.keep(job.job_id, record)
            if removed:
                self._archive.finish(job.job_id, name=job.name, ended_ms=job.ended_ms)
