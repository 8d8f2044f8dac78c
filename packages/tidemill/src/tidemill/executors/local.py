"""The local executor: instances as processes of this machine.

It writes a spec and starts a shim, which may outlive this process. The state of an instance is read from its files
(`docs/reference/instance-files.md`); data in memory is only a cache. Since shim and service share a machine, references
become paths here: objects are files of the object store, the log is written directly into its segments, artifacts are
adopted in place, and endpoints listen on unix sockets.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import structlog

from tidemill.core import faults
from tidemill.core.instances import InstanceRef, Isolation, ObjectReference
from tidemill.core.remotes import RemoteS3
from tidemill.core.state_directories import register_state_directory
from tidemill.errors import LaunchError
from tidemill.executors.base import Capacity, EventFile, KnownInstance, UnixServer
from tidemill.executors.event_files import event_files_of, open_event_file
from tidemill.executors.gpus import GpuPool, find_gpus
from tidemill.executors.local_objects import LocalObjects
from tidemill.executors.local_specs import LocalSpecs
from tidemill.executors.networks import JobNetworks
from tidemill.executors.remains import Remains
from tidemill.executors.shim_watch import ShimWatch
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.records import FAST_FILE_CACHE_MAX_BYTES, Site
from tidemill.instance.spec import InstanceSpec
from tidemill.instance.status import InstanceStatus, StopReason
from tidemill.sandbox import detect, fuse_fault
from tidemill.shim.shared_links import LinkDirectories

_log = structlog.get_logger("tidemill.executor")


class LocalExecutor:
    """Runs instances on this machine. Implements `tidemill.executors.base.Executor`.

    Only one executor may use a state directory at a time.

    Args:
        state_dir: Directory of the jobs; created if missing. Hidden from jobs.
        isolation: ``auto``, ``full``, ``mount``, ``plain``, or another value that `tidemill.sandbox.detect` accepts.
        instances: Training instances that may run at the same time; default: one per processor.
        content_file: Returns the file of an object's content by its content id; of content in another S3, the file
            that will be its copy.
        remotes: The other S3 stores by bucket name or pattern.
        logs: Root directory of the log segments.
        service_url: URL of the service for jobs in separate networks.
        hidden: A parent directory of ``state_dir`` to hide from jobs; default: ``state_dir`` alone.
        private: Further files and directories to hide from jobs. Default: none.
        readable: Paths that jobs may read although they would be hidden. Default: none.
        agent: File that names a process; instances end when that process ends. None: they outlive this process.
        gpus: GPUs for instances, in the format of CUDA_VISIBLE_DEVICES; None takes the GPUs that nvidia-smi lists.
        share_gpus: Let several instances use the same GPU.
        fast_file_cache_max_bytes: Maximum size of the cache of a channel in FastFile mode. Default: 64 GiB.

    Raises:
        ConfigurationError: The isolation asked for does not work here.

    Methods may be called from several threads; `changed` from one event loop.
    """

    def __init__(
        self,
        *,
        state_dir: Path,
        environments_dir: Path,
        isolation: str = "auto",
        instances: int | None = None,
        content_file: Callable[[str], str | Path],
        remotes: Mapping[str, RemoteS3] | None = None,
        logs: Path,
        service_url: str | None = None,
        hidden: Path | None = None,
        private: tuple[Path, ...] = (),
        readable: tuple[Path, ...] = (),
        agent: Path | None = None,
        gpus: tuple[str, ...] | None = None,
        share_gpus: bool = False,
        fast_file_cache_max_bytes: int = FAST_FILE_CACHE_MAX_BYTES,
    ) -> None:
        self._state_dir = state_dir.resolve()
        environments_dir = environments_dir.resolve()
        (self._state_dir / "jobs").mkdir(parents=True, mode=0o700, exist_ok=True)
        self._detection = detect(isolation)
        devices = tuple(gpu.uuid for gpu in find_gpus()) if gpus is None else gpus
        self._gpus = GpuPool(devices, shared=share_gpus)
        self._capacity = _capacity(instances, gpus=len(devices), shares_gpus=share_gpus)
        self._servers: dict[InstanceRef, UnixServer] = {}
        try:
            register_state_directory(hidden or self._state_dir, environments_dir=environments_dir)
        except OSError as error:
            _log.warning("state_directory.unregistered", directory=str(environments_dir), reason=str(error))
        self._networks = JobNetworks(self._state_dir, service_url)
        self._watch = ShimWatch(self._state_dir)
        self._links = LinkDirectories(self._state_dir)
        self._remains = Remains(self._state_dir, kill=self.kill)
        # In isolation plain a job could write through links that others use.
        shared = None if self._detection.sandbox.isolation is Isolation.PLAIN else self._links
        self._objects = LocalObjects(content_file, remotes or {}, links=shared)
        site = Site(
            state_dir=self._state_dir,
            environments_dir=environments_dir,
            backend=self._detection.sandbox.name,
            hidden=hidden,
            private=private,
            readable=readable,
            agent=agent,
            fast_file_cache_max_bytes=fast_file_cache_max_bytes,
        )
        self._specs = LocalSpecs(
            site, self._detection, logs=logs, networks=self._networks, gpus=self._gpus, objects=self._objects
        )

    @property
    def isolation(self) -> Isolation:
        return Isolation.FULL if self._detection.always else self._detection.sandbox.isolation

    @property
    def isolation_reason(self) -> str:
        """A sentence that says which sandbox jobs get, and why."""
        return self._detection.reason

    @property
    def no_network(self) -> str:
        return self._detection.no_network

    def fast_file_fault(self) -> str:
        """Return why jobs cannot read a remote S3 in FastFile mode here, and what to do; empty if they can."""
        return fuse_fault(self._detection.sandbox)

    def capacity(self) -> Capacity:
        return self._capacity

    def launch(self, specs: Sequence[InstanceSpec]) -> None:
        for spec in specs:
            self._refuse_if_over(spec.ref)
        try:
            # Write all specs before starting the first instance. If a service died in between, no instance has run,
            # and the specs that it wrote are outdated, e.g. the keys of the job.
            anew = not all(self._directory(spec.ref).spec_file.exists() for spec in specs)
            for spec in specs:
                self._write(spec, anew=anew)
                faults.point("executor.written")
            for spec in specs:
                self.relaunch(spec.ref)
                faults.point("executor.started")
        except Exception:
            for spec in specs:
                self._withdraw(spec.ref)
            raise

    def relaunch(self, ref: InstanceRef) -> None:
        directory = self._directory(ref)
        if not directory.spec_file.exists() or directory.read_exit() or self._newest_attempt(ref) > ref.attempt:
            return
        if directory.read_run() is None:
            self._specs.ensure_network(directory)
        self._watch.start(directory)
        self._watch.take_up(directory)

    def recover(self, *, finished: Callable[[str], bool]) -> list[KnownInstance]:
        found: list[KnownInstance] = []
        with os.scandir(self._state_dir / "jobs") as jobs:
            for job in jobs:
                # There may be very many cleaned-up jobs, so nothing else is done for each of them.
                if not finished(job.name):
                    found += self._recover_job(job.name)
        return found

    def observe(self, ref: InstanceRef) -> InstanceStatus:
        directory = self._directory(ref)
        launched = directory.spec_file.exists()
        # Check whether the shim runs before reading its files: it writes its exit before it ends, and nothing later.
        running = launched and self._watch.runs(directory)
        ended = directory.read_exit()
        return InstanceStatus(
            launched=launched,
            running=running and ended is None,
            phases=directory.read_phases(),
            exit=ended,
            attempt=ref.attempt,
            last_words=directory.last_words() if launched and not running and ended is None else "",
        )

    def stop(self, ref: InstanceRef, *, reason: StopReason) -> None:
        self._watch.ask_to_stop(self._directory(ref), reason=reason)

    def kill(self, ref: InstanceRef) -> None:
        self._watch.kill(self._directory(ref))

    async def changed(self, *, timeout_s: float) -> set[InstanceRef]:
        return await self._watch.changed(timeout_s=timeout_s)

    def server_address(self, ref: InstanceRef) -> UnixServer:
        """Return the address of a model server, also before its socket exists."""
        if ref not in self._servers:  # cached, because every request needs it
            self._servers[ref] = UnixServer(self._directory(ref).private / "serving.sock")
        return self._servers[ref]

    def deliver(self, ref: InstanceRef, archive: ObjectReference, *, name: str) -> None:
        self._objects.deliver(archive, self._directory(ref).archives, name=name)

    def event_files(self, ref: InstanceRef) -> Sequence[EventFile]:
        return list(event_files_of(self._directory(ref)))

    def open_event_file(self, ref: InstanceRef, name: str) -> int:
        return open_event_file(self._directory(ref), name)

    def publication(self, ref: InstanceRef, name: str) -> Path | None:
        file = self._directory(ref).artifacts / f"{name}.tar.gz"
        return file if file.exists() else None

    def reap(self, job_id: str, *, keep_files: bool = False) -> bool:
        self._networks.end(job_id)
        for directory in InstanceDirectory.all_below(self._state_dir, job_id):
            self._end(directory.ref)
        return keep_files or self._remains.remove_job(job_id)

    def warm_up(self, framework_version: str) -> None:
        """Start the process from which warm jobs of that TensorFlow version are forked, if its environment is built.

        Args:
            framework_version: For example ``2.21``.
        """
        self._specs.warm_up(framework_version)

    def remove_leftovers(self) -> None:
        """Try again to remove the files of jobs that `reap` could not remove.

        May take long: call it outside the event loop.
        """
        for job_id in self._remains.delayed:
            if self.reap(job_id):
                _log.info("clean_up.done", job_id=job_id)

    def remove_unused_links(self, *, idle_s: float) -> int:
        """Remove directories of links that no instance has used for ``idle_s`` seconds. Return their number.

        May take a second: call it outside the event loop.

        Args:
            idle_s: Seconds since the last use.
        """
        return self._links.remove_unused(idle_s=idle_s)

    def close(self) -> None:
        """Stop watching, and end the warm processes. Instances continue to run."""
        self._specs.close()
        self._watch.close()

    def _directory(self, ref: InstanceRef) -> InstanceDirectory:
        return InstanceDirectory.of(self._state_dir, ref)

    def _refuse_if_over(self, ref: InstanceRef) -> None:
        newest = self._newest_attempt(ref)
        if newest > ref.attempt:
            raise LaunchError(f"attempt {ref.attempt} of job {ref.job_id} is over: attempt {newest} was launched")

    def _write(self, spec: InstanceSpec, *, anew: bool) -> None:
        """Write the spec of an instance. With ``anew`` it replaces the spec of an instance that was never started."""
        ref, directory = spec.ref, self._directory(spec.ref)
        for older in self._attempts(ref):
            if older.ref.attempt < ref.attempt:
                self._end(older.ref)
                self._remains.remove_attempt(older)
        self._networks.end(ref.job_id, before=ref.attempt)
        if directory.spec_file.exists() and (not anew or directory.read_exit() or self._watch.runs(directory)):
            return
        try:
            self._specs.write(directory, spec)
        except OSError as error:
            raise LaunchError(f"the directory of the instance cannot be written: {error}") from error

    def _withdraw(self, ref: InstanceRef) -> None:
        """Undo the launch of an instance, so that it counts as never launched."""
        self._end(ref)
        directory = self._directory(ref)
        if self._remains.withdraw(directory):
            self._networks.end(ref.job_id)
        with contextlib.suppress(OSError):  # fails if the job has other instances
            directory.path.parent.rmdir()

    def _end(self, ref: InstanceRef) -> None:
        """Kill the remaining processes of an instance, and forget it."""
        self.kill(ref)
        self._gpus.give_back(ref)
        self._watch.forget(ref)
        self._servers.pop(ref, None)

    def _attempts(self, ref: InstanceRef) -> Iterator[InstanceDirectory]:
        for directory in InstanceDirectory.all_below(self._state_dir, ref.job_id):
            if directory.ref.instance_index == ref.instance_index:
                yield directory

    def _newest_attempt(self, ref: InstanceRef) -> int:
        return max((directory.ref.attempt for directory in self._attempts(ref)), default=0)

    def _recover_job(self, job_id: str) -> Iterator[KnownInstance]:
        for directory in InstanceDirectory.all_below(self._state_dir, job_id):
            try:
                record = self._specs.read(directory)
            except ValueError as error:
                # The driver of the job reports the fault; the service starts nevertheless.
                _log.warning("recover.unreadable", file=str(directory.spec_file), reason=str(error))
                continue
            if directory.read_exit() is None:
                self._gpus.note(directory.ref, record.devices or ())
            self._watch.take_up(directory)
            yield KnownInstance(ref=directory.ref, kind=record.spec.kind, job_name=record.spec.job_name)


def _capacity(instances: int | None, *, gpus: int, shares_gpus: bool) -> Capacity:
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Capacity(instances=instances or cpus, cpus=cpus, gpus=gpus, shares_gpus=shares_gpus)
