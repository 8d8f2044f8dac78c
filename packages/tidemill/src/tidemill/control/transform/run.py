"""Transform all objects of a job, distributed over its instances. Each result appears complete or not at all.

The metadata of a result contains the id of its job. A restarted service skips the objects that have such a result.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from tidemill.control.channels import ChannelListing
from tidemill.control.remotes import RemoteListingFault, Remotes
from tidemill.control.transform.model_server import ModelServer
from tidemill.control.transform.one_object import Assembly, ObjectFailed, ObjectTransform
from tidemill.control.transform.rights import NotAllowed, RoleRights
from tidemill.core import faults
from tidemill.core.instances import ObjectReference
from tidemill.core.job_scope import JobScope
from tidemill.core.names import S3Uri
from tidemill.core.remotes import RemoteS3
from tidemill.core.segments import SegmentWriter
from tidemill.core.transform import TransformJob
from tidemill.errors import AwsError, ServiceUnavailable
from tidemill.instance.spec import Input, RemoteObject
from tidemill.store.objects.index import ObjectAttributes, check_key
from tidemill.store.objects.store import ObjectStore

_MARK = "tidemill-transform-job"


@dataclass(slots=True)
class Transformed:
    """Progress of a job.

    Attributes:
        done: Number of objects with a result.
        failed: Number of objects that failed.
        first_failure: Reason of the first failure.
    """

    done: int = 0
    failed: int = 0
    first_failure: str = ""


@dataclass(slots=True, kw_only=True)
class TransformRun:
    """Transforms the objects of one job.

    Attributes:
        servers: One server per instance.
        assembly: Builds requests and assembles results.
        rights: Checks what the model's role may read and write.
        objects: Holds objects of the service's own S3, and stores the results.
        remotes: Remote S3 stores by bucket name or pattern.
        log: The job's log, with one line per object.
        headers: Members about storage that S3 shows of the results.
    """

    job: TransformJob
    inputs: ChannelListing
    servers: Sequence[ModelServer]
    assembly: Assembly
    rights: RoleRights
    objects: ObjectStore
    remotes: Mapping[str, RemoteS3]
    log: SegmentWriter
    headers: Mapping[str, Any] = field(default_factory=dict)
    transformed: Transformed = field(default_factory=Transformed)

    async def run(self) -> Transformed:
        """Transform every object that has no result of this job yet.

        Raises:
            ServiceUnavailable: The disk is full. A later call continues with the objects that have no result.
        """
        waiting = iter(self.inputs)
        try:
            async with asyncio.TaskGroup() as workers:
                most = self.job.max_concurrent
                rooms = [(server, asyncio.Semaphore(most)) for server in self.servers]
                for server, room in (each for each in rooms for _ in range(most)):
                    workers.create_task(self._work(waiting, server, room))
        except ExceptionGroup as group:
            raise group.exceptions[0] from group
        return self.transformed

    async def _work(self, waiting: Iterator[Input], server: ModelServer, room: asyncio.Semaphore) -> None:
        for entry in waiting:
            if isinstance(entry, ObjectReference | RemoteObject):
                await self._take(entry, server, room)

    async def _take(self, entry: ObjectReference | RemoteObject, server: ModelServer, room: asyncio.Semaphore) -> None:
        target = S3Uri.parse(self.job.request["TransformOutput"]["S3OutputPath"]) / f"{entry.name}.out"
        try:
            if not self._has_result(target):
                await self._transform(entry, target, server, room)
            self.transformed.done += 1
            return
        except ServiceUnavailable:
            raise
        except (ObjectFailed, NotAllowed) as error:
            reason = str(error)
        except RemoteListingFault as error:
            reason = f"ClientError: {entry.uri}: {error}"
        except FileNotFoundError:
            reason = f"ClientError: {entry.uri} was deleted or replaced before it was transformed"
        except AwsError as error:
            reason = f"ClientError: {entry.uri}: its result {target} cannot be stored: {error.message}"
        self.transformed.failed += 1
        self.transformed.first_failure = self.transformed.first_failure or reason
        self._note(reason)

    def _has_result(self, target: S3Uri) -> bool:
        info = self.objects.head_if_sound(target.bucket, target.key)
        return info is not None and info.metadata.get(_MARK) == self.job.job_id

    async def _transform(
        self, entry: ObjectReference | RemoteObject, target: S3Uri, server: ModelServer, room: asyncio.Semaphore
    ) -> None:
        check_key(target.key)
        self.rights.check("s3:GetObject", S3Uri.parse(entry.uri))
        self.rights.check("s3:PutObject", target)
        async with self._opened(entry) as file:
            transform = ObjectTransform(entry.uri, file, assembly=self.assembly, server=server, room=room)
            async with (
                contextlib.aclosing(transform.results()) as results,
                self.objects.contents.new.receive(results, name=f"{target.bucket}/{target.key}") as content,
            ):
                faults.point("control.transform.object.before")
                attributes = ObjectAttributes(
                    content_type=transform.content_type or "application/octet-stream",
                    metadata={_MARK: self.job.job_id},
                    headers=self.headers,
                )
                publisher = JobScope.of_transform(self.job.request).publisher
                await self.objects.contents.publish(
                    target.bucket, target.key, content, attributes=attributes, publisher=publisher
                )
        faults.point("control.transform.object.after")
        self._note(f"transformed {entry.uri} to {target}: {transform.requests} requests, {content.size_bytes} bytes")

    @contextlib.asynccontextmanager
    async def _opened(self, entry: ObjectReference | RemoteObject) -> AsyncGenerator[IO[bytes]]:
        """Open the content of an object; download it first if it is in a remote S3."""
        if isinstance(entry, ObjectReference):
            with await asyncio.to_thread(self.objects.open, entry) as file:
                yield file
            return
        with tempfile.NamedTemporaryFile() as file:
            await asyncio.to_thread(self._fetch, entry, file)
            yield file

    def _fetch(self, entry: RemoteObject, file: IO[bytes]) -> None:
        uri = S3Uri.parse(entry.uri)
        store = Remotes(self.remotes).store_of(uri.bucket)
        if store is None or not store.fetch(uri, file):
            raise FileNotFoundError(entry.uri)
        file.seek(0)

    def _note(self, line: str) -> None:
        self.log.write(line.encode())
