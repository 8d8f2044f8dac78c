"""Prepare the run of a transform job: its inputs, its servers, the rights of its role, and its log."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tidemill.control.bucket_rules import BucketRules
from tidemill.control.channels import ChannelResolver
from tidemill.control.plan import TRANSFORM_LOG_GROUP
from tidemill.control.transform.model_server import ModelServer, Patience
from tidemill.control.transform.one_object import Assembly
from tidemill.control.transform.rights import RoleRights
from tidemill.control.transform.run import TransformRun
from tidemill.core.instances import InstanceRef
from tidemill.core.names import S3Uri
from tidemill.core.remotes import RemoteS3
from tidemill.core.roles import Roles
from tidemill.core.segments import SegmentWriter, create_stream
from tidemill.core.transform import TransformJob
from tidemill.executors.base import Executor
from tidemill.store.objects.store import ObjectStore


class TransformRuns:
    """Prepares runs.

    Args:
        objects: Stores data and results.
        executor: Has the addresses of the servers.
        roles: The policies of roles.
        rules: Finds what S3 shows of the encryption of the results. Policies of buckets do not apply to them.
        remotes: Remote S3 stores by bucket name or pattern.
        logs: Root directory of the log segments.
    """

    def __init__(
        self,
        objects: ObjectStore,
        executor: Executor,
        *,
        roles: Roles,
        rules: BucketRules,
        remotes: Mapping[str, RemoteS3],
        logs: Path,
    ) -> None:
        self._objects = objects
        self._executor = executor
        self._roles = roles
        self._rules = rules
        self._remotes = remotes
        self._logs = logs

    @asynccontextmanager
    async def opened(self, job: TransformJob, refs: Sequence[InstanceRef]) -> AsyncGenerator[TransformRun]:
        """Yield the run of a job on its instances, whose log is open and whose connections last until the block ends.

        Raises:
            DataMissing: There are no objects to transform.
        """
        source = job.request["TransformInput"]["DataSource"]["S3DataSource"]
        target = job.request["TransformOutput"]
        output = target["S3OutputPath"]
        inputs = await asyncio.to_thread(
            lambda: ChannelResolver(self._objects, self._remotes).listing(source, what="TransformInput")
        )
        with self._log(job) as log:
            patience = Patience.of_request(job.request)
            servers = [
                ModelServer(self._executor, ref, patience=patience, note=lambda line: log.write(line.encode()))
                for ref in refs
            ]
            try:
                yield TransformRun(
                    job=job,
                    inputs=inputs,
                    servers=servers,
                    assembly=Assembly.of_job(job),
                    rights=RoleRights(self._roles, model=job.model, arn=job.arn, output=output),
                    objects=self._objects,
                    remotes=self._remotes,
                    log=log,
                    headers=self._rules.members_of(S3Uri.parse(output).bucket, target.get("KmsKeyId")),
                )
            finally:
                for server in servers:
                    server.close()

    def log(self, job: TransformJob, lines: Sequence[str]) -> None:
        """Append lines to the log of a job that is not open."""
        if lines:
            with self._log(job) as log:
                log.write_many(line.encode(errors="replace") for line in lines)

    def _log(self, job: TransformJob) -> SegmentWriter:
        return SegmentWriter(create_stream(self._logs, TRANSFORM_LOG_GROUP, job.data_log_stream))
