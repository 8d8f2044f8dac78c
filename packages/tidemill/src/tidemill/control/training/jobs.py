"""Jobs that run a script: create, look up, list, stop, delete. `tidemill.control.training.driver` runs them.

`ScriptJobs` is what training and processing jobs share; `Training` are the training jobs.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tidemill.control.admission import Capabilities
from tidemill.control.jobs import TRAINING, AcceptedJobs, S
from tidemill.control.tags import check_tags
from tidemill.control.training.admission import admit
from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.core.spans import CURRENT
from tidemill.core.training import JobStatus, SecondaryStatus, TrainingJob, instance_groups
from tidemill.errors import ResourceNotFound, ValidationException
from tidemill.store.objects.store import ObjectStore
from tidemill.store.records.base import RecordStore


class ScriptJobs(AcceptedJobs[S]):
    """The jobs of one kind that run a script.

    Args:
        objects: Used to check that the buckets of a job's outputs exist.
        wake: Called with the name of a new or changed job.
        capabilities: What the service can honor. Default: everything.
    """

    def __init__(
        self,
        records: RecordStore,
        objects: ObjectStore,
        *,
        region: str,
        clock: Clock,
        wake: Callable[[str], None],
        capabilities: Capabilities | None = None,
    ) -> None:
        super().__init__(records, region=region, clock=clock, wake=wake)
        self._objects = objects
        self._capabilities = capabilities or Capabilities()

    def _stopping(self, job: S, at_ms: int) -> S:
        if job.status is not JobStatus.IN_PROGRESS:
            return job
        stopping = job.enter(SecondaryStatus.STOPPING, at_ms=at_ms, message=f"Stopping the {self.kind.title}")
        return replace(stopping, stop_requested=True)

    async def _accept(
        self,
        make: Callable[..., S],
        name: str,
        request: Mapping[str, Any],
        *,
        resources: Mapping[str, Any],
        tags: dict[str, str],
    ) -> S:
        """Store a checked request as a job in its first state, and wake its driver.

        Args:
            request: The members of its request, without tags.
            resources: Its instances, by the member names of ResourceConfig.
            tags: Values by key, checked.
        """
        now_ms, asking = self._clock.now_ms(), CURRENT.get()
        hosts = [host for group in instance_groups(resources) for host in group.hosts]
        new = make(
            name=name,
            arn=self._arn(name),
            job_id=secrets.token_hex(16),
            request=dict(request),
            created_ms=now_ms,
            log_streams=tuple(f"{name}/{host}-{now_ms // 1000}" for host in hosts),
            trace=asking.traceparent if asking else None,
        ).enter(SecondaryStatus.STARTING, at_ms=now_ms, message=f"Starting the {self.kind.title}")
        job = await self.insert(lambda _: new, tags=tags)
        faults.point("control.created")
        self._wake(job.name)
        return job


class Training(ScriptJobs[TrainingJob]):
    """The training jobs of the account."""

    KIND = TRAINING

    async def check(self, request: Mapping[str, Any]) -> None:
        """Refuse a request that `create` would refuse, whatever its name.

        Args:
            request: The members of CreateTrainingJob without its tags.

        Raises:
            ValidationException: The request cannot be honored.
            ResourceLimitExceeded: The job could never start on this machine.
        """
        await admit(request, capabilities=self._capabilities, objects=self._objects)

    async def create(
        self, request: Mapping[str, Any], *, tags: Sequence[Mapping[str, str]] = (), tuning_job_arn: str = ""
    ) -> TrainingJob:
        """Accept a job. After this returns, the job and its tags survive kill -9.

        Args:
            request: The members of CreateTrainingJob without its tags.
            tags: ``{"Key": ..., "Value": ...}`` each.
            tuning_job_arn: The tuning job whose trial it is. Default: none.

        Raises:
            ValidationException: The request cannot be honored.
            ResourceInUse: The name is taken.
            ResourceLimitExceeded: The job could never start on this machine.
        """
        checked_tags = check_tags(tags) if tags else {}
        await self.check(request)
        return await self._accept(
            partial(TrainingJob, tuning_job_arn=tuning_job_arn),
            request["TrainingJobName"],
            request,
            resources=request["ResourceConfig"],
            tags=checked_tags,
        )

    async def update_recorded(self, request: Mapping[str, Any]) -> TrainingJob:
        """Change what is recorded of a job: its profiler's configuration and rules, and the length of its warm pool.

        Args:
            request: The members of UpdateTrainingJob.

        Raises:
            ResourceNotFound: There is no such job.
            ValidationException: The request changes the profiler of a job that is not InProgress.
        """
        name = request["TrainingJobName"]
        if self.find(name) is None:
            raise ResourceNotFound(self.kind.missing.format(name=name))
        return await self.update(name, lambda job: _updated(job, request))

    async def interrupt(self, name: str) -> None:
        """Interrupt the instances of a job on spot instances; it starts again from its checkpoints.

        Raises:
            ValidationException: There is no such job, it is not on spot instances, or it is not InProgress.
        """
        job = self.get(name)
        if not job.is_spot:
            raise ValidationException(
                f"The training job {name!r} cannot be interrupted: it was created without EnableManagedSpotTraining"
                " (use_spot_instances=True), so its instances are never taken away. Create it with that"
            )
        if job.status is not JobStatus.IN_PROGRESS:
            raise ValidationException(
                f"The training job {name!r} cannot be interrupted: it is in status {job.status}; only a job that is"
                " InProgress can be interrupted"
            )
        await self.update(name, _interrupted)
        self._wake(name)


def _updated(job: TrainingJob, request: Mapping[str, Any]) -> TrainingJob:
    changed = dict(job.request)
    profiler = {name: request[name] for name in ("ProfilerConfig", "ProfilerRuleConfigurations") if name in request}
    if profiler and job.status is not JobStatus.IN_PROGRESS:
        raise ValidationException(
            f"The training job {job.name!r} cannot be updated: it is in status {job.status}; {' and '.join(profiler)}"
            " can be updated only while a job is InProgress"
        )
    if "ProfilerConfig" in profiler:
        changed["ProfilerConfig"] = {**changed.get("ProfilerConfig", {}), **profiler["ProfilerConfig"]}
    if "ProfilerRuleConfigurations" in profiler:
        changed["ProfilerRuleConfigurations"] = profiler["ProfilerRuleConfigurations"]
    if "ResourceConfig" in request:
        changed["ResourceConfig"] = {**changed["ResourceConfig"], **request["ResourceConfig"]}
    return replace(job, request=changed)


def _interrupted(job: TrainingJob) -> TrainingJob:
    if job.status is not JobStatus.IN_PROGRESS or job.interrupted:
        return job
    return replace(job, interrupted_attempt=job.attempt)
