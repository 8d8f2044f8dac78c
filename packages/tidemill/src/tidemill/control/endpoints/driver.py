"""Reconcile endpoints: start missing instances, watch running ones, and end retired ones.

The state is in the store and in the instances' files, as for training jobs; the servers outlive this process. Each
reconcile compares the stored endpoint with its running instances, and does the next step, which is idempotent:

- An instance is stored before it is started, so every server process has a record.
- A starting deployment takes over in one commit, once all its instances answer. Before that commit every request goes
  to the old instances, after it to the new ones.
- A retired instance is stopped once it has answered all its requests. Its record is deleted after its files.
"""

from collections.abc import Callable
from dataclasses import replace

import structlog

from tidemill.control.credentials import end_keys
from tidemill.control.endpoints.capture import Capture, Captured
from tidemill.control.endpoints.instances import Instances, failure_of
from tidemill.control.endpoints.invocations import Invocations
from tidemill.control.endpoints.replacements import Replacements
from tidemill.control.endpoints.serverless import Serverless
from tidemill.control.endpoints.traffic import EndpointTraffic, ModelCall
from tidemill.control.endpoints.variants import new_instance
from tidemill.control.invoker import Answer
from tidemill.control.plan import DataMissing, ServerPlanner
from tidemill.control.resources import ENDPOINT, ENDPOINT_REMOVAL, endpoint_record, sound_records
from tidemill.control.server_keys import ServerKeys
from tidemill.control.tags import delete_tags
from tidemill.control.target_models import TargetModels
from tidemill.control.work_queue import WorkQueue, guarded
from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.core.hosting import Deployment, Endpoint, EndpointStatus, Instance, Variant
from tidemill.core.instances import InstanceRef
from tidemill.errors import LaunchError, MachinesBusy
from tidemill.executors.base import Executor
from tidemill.store.records.base import Query, Record, RecordStore, Transaction

_log = structlog.get_logger("tidemill.endpoints")
_SOON_S = 0.1
_LOOK_S = 5.0
_BUSY_S = 5.0
"""How long to wait before the executor is asked again for a machine."""
_UNHEALTHY_S = 120.0
"""A running instance that answers no /ping for this long is replaced. Long, as it may be busy with one request."""

_Change = Callable[[Endpoint], Endpoint]


class EndpointDriver:
    """Reconcile every endpoint, with one task per endpoint.

    Args:
        planner: Creates the specs of instances.
        keys: Issues the keys of instances; None gives them none.
        capture: Stores requests and answers of endpoints with a DataCaptureConfig; None captures nothing.
        serverless_idle_s: Seconds without a request after which a serverless variant's server ends.

    Attributes:
        invocations: The requests of variants that scale automatically.
        counts: The requests of all variants.
        served: Asks servers about their models.
    """

    def __init__(
        self,
        records: RecordStore,
        executor: Executor,
        *,
        planner: ServerPlanner,
        clock: Clock,
        keys: ServerKeys | None = None,
        capture: Capture | None = None,
        serverless_idle_s: float = 300.0,
    ) -> None:
        self._records = records
        self._executor = executor
        self._clock = clock
        self._queue = WorkQueue("endpoint", self._drive)
        self._instances = Instances(executor, planner, keys)
        self._serverless = Serverless(clock, idle_s=serverless_idle_s)
        self.invocations = Invocations(clock)
        self._traffic = EndpointTraffic(
            self._instances,
            TargetModels(executor),
            lambda v, t: planner.target_archive(v, t),
            serverless=self._serverless,
            invocations=self.invocations,
            awaken=self._scale_from_zero,
            clock=clock,
        )
        self.counts, self.served = self._traffic.counts, self._traffic.served
        self._replacements = Replacements(clock)
        self._capture = capture
        self._taken_up: dict[tuple[str, int], int] = {}
        """By key of an instance: when this service launched it or found it, in milliseconds."""
        self._queued: dict[tuple[str, int], tuple[int, str]] = {}
        """By key of an instance that waits for a machine: when the executor was last asked for one, and its reason."""

    async def start(self) -> None:
        """Start a task for every stored endpoint, including deleted ones that still drain under their ids."""
        for kind in (ENDPOINT, ENDPOINT_REMOVAL):
            async for record in sound_records(self._records, kind, Query(descending=False)):
                self.wake(Endpoint.from_document(record.document))

    def wake(self, endpoint: Endpoint) -> None:
        """Reconcile an endpoint that was created or changed.

        Args:
            endpoint: The endpoint.
        """
        self._queue.wake(_key(endpoint))

    def changed(self, ref: InstanceRef) -> bool:
        """Reconcile the endpoint of an instance whose state changed. Return whether it belongs to an endpoint.

        Args:
            ref: The attempt.
        """
        return self._queue.changed(ref)

    async def close(self) -> None:
        """Stop reconciling and close connections; the servers keep running."""
        await self._queue.close()
        self._instances.close()

    @property
    def capacity(self) -> int:
        """Number of instances for which the machines have room, those of jobs included."""
        return self._executor.capacity().instances

    async def invoke(self, current: Callable[[], Endpoint], call: ModelCall) -> tuple[Answer, Variant]:
        """Send a request to one of an endpoint's servers, and capture it if configured; see `EndpointTraffic.send`.

        Args:
            current: Returns the endpoint as it is now; asked again after a failure.
            call: Body, headers, variant and time limit.
        """
        endpoint = current()
        answer, variant = await self._traffic.send(current, call)
        config = endpoint.serving.capture if endpoint.serving else None
        if config is not None and self._capture is not None:
            captured = Captured(
                endpoint=endpoint.name, variant=variant.name, config=config, inference_id=call.inference_id
            )
            self._capture.note(captured, call, answer)
        return answer, variant

    def in_flight(self, instance: Instance) -> int:
        """Return the number of requests that an instance is working on.

        Args:
            instance: The instance.
        """
        return self._traffic.in_flight(instance)

    async def _scale_from_zero(self, endpoint: Endpoint, variant: Variant) -> None:
        """Add an instance to a serverless variant that has a request but no instance."""
        faults.point("control.endpoint.awakened")
        await self._change(_key(endpoint), lambda now: now.resized(variant.name, 1))
        self.wake(endpoint)

    async def _drive(self, key: str) -> None:
        async def fail(reason: str) -> None:
            await self._give_up(key, reason)
            # Keep the task: a failed endpoint can still be deleted, and a failed deletion is retried.
            await self._queue.wait(key, timeout_s=_LOOK_S)

        while not await guarded(self._follow(key), key, fail):
            pass

    async def _follow(self, key: str) -> None:
        """Reconcile an endpoint until it is deleted."""
        while (endpoint := self._endpoint(key)) is not None:
            for job_id in endpoint.owns:
                self._queue.listen(job_id, key)
            await self._instances.renew_keys(endpoint)
            if endpoint.status is EndpointStatus.DELETING:
                if await self._removed(endpoint):
                    return
            else:
                await self._step(key, endpoint)
            await self._queue.wait(key, timeout_s=_SOON_S if self._is_changing(key) else _LOOK_S)

    def _is_changing(self, key: str) -> bool:
        """Return whether instances are starting or retiring, so that the next reconcile should come soon."""
        endpoint = self._endpoint(key)
        if endpoint is None or endpoint.status is EndpointStatus.FAILED:
            return bool(endpoint and endpoint.retiring)
        serving = endpoint.serving
        return bool(endpoint.starting or endpoint.retiring or (serving and not serving.complete))

    async def _step(self, key: str, endpoint: Endpoint) -> None:
        """Bring the running instances one step closer to the stored endpoint."""
        if endpoint.status is not EndpointStatus.FAILED:
            endpoint = await self._filled(key, endpoint)
            if endpoint.serving is not None:
                await self._watch(key, endpoint, endpoint.serving)
                await self._scale_to_zero(key, endpoint.endpoint_id)
            if endpoint.starting is not None:
                await self._bring_up(key, endpoint, endpoint.starting)
        for instance in (self._endpoint(key) or endpoint).retiring:
            if not self._traffic.in_flight(instance):
                await self._retire(key, instance)

    async def _filled(self, key: str, endpoint: Endpoint) -> Endpoint:
        """Add instances for those that the serving deployment lacks, unless replacements must still wait."""
        serving = endpoint.serving
        lacking = [each for each in serving.variants if each.missing > 0] if serving else []
        if not lacking or endpoint.starting is not None or not self._replacements.due(key):
            return endpoint
        at_ms = self._clock.now_ms()
        more = {each.name: [new_instance(each.name, at_ms=at_ms) for _ in range(each.missing)] for each in lacking}

        def fill(now: Endpoint) -> Endpoint:
            if now.starting is not None or now.serving is None:
                return now
            filled = now.serving.with_instances(lambda v: (*v.instances, *more.get(v.name, ())[: max(v.missing, 0)]))
            return replace(now, serving=filled)

        changed = await self._change(key, fill) or endpoint
        faults.point("control.endpoint.replaced")
        for job_id in changed.owns:
            self._queue.listen(job_id, key)
        return changed

    async def _scale_to_zero(self, key: str, endpoint_id: str) -> None:
        """Retire the instances of idle serverless variants."""
        endpoint = self._endpoint(key)
        serving = endpoint.serving if endpoint else None
        for variant in serving.variants if serving else ():
            if self._serverless.idle(endpoint_id, variant):
                await self._change(key, lambda now, name=variant.name: now.resized(name, 0))
                _log.info("endpoint.idle", endpoint=key, variant=variant.name)

    async def _bring_up(self, key: str, endpoint: Endpoint, starting: Deployment) -> None:
        """Start a deployment; promote it when all its instances answer, or roll back if one cannot."""
        kept = {each.key for each in endpoint.serving.instances} if endpoint.serving else set()
        every = [(variant, instance) for variant in starting.variants for instance in variant.instances]
        for variant, instance in every:
            if instance.key in kept or instance.ready:
                continue
            failure = await self._warmed(key, endpoint, variant, instance, starting.limit_s)
            if failure:
                await self._give_up(key, failure)
                return
        now = self._endpoint(key)
        if now is None or now.starting is None:
            return
        if not now.starting.complete:
            if any(each.missing > 0 for each in now.starting.variants):
                await self._give_up(key, "InternalServerError: an instance that was to be kept has died")
            return
        faults.point("control.endpoint.warmed")
        await self._change(key, Endpoint.promoted)
        faults.point("control.endpoint.swapped")
        _log.info("endpoint.in_service", name=endpoint.name, config=starting.config_name)

    async def _warmed(
        self, key: str, endpoint: Endpoint, variant: Variant, instance: Instance, limit_s: int | None
    ) -> str:
        """Start an instance and mark it ready when it answers. Return why it failed; empty if it has not."""
        try:
            await self._started(endpoint, variant, instance)
        except MachinesBusy as busy:
            await self._note_wait(key, endpoint, instance, str(busy))
            waited_s = (self._clock.now_ms() - instance.created_ms) / 1000
            return f"No machine was free within {limit_s} s: {busy}" if limit_s and waited_s > limit_s else ""
        except (DataMissing, LaunchError) as error:
            return str(error)
        await self._note_wait(key, endpoint, instance, "")
        state = await self._instances.observe(instance)
        if failure := failure_of(state):
            return failure
        if state.phases and state.phases[-1].status == "Serving" and await self._instances.healthy(instance):
            await self._change(key, lambda now: now.made_ready(instance))
            return ""
        within_s = min(variant.healthy_within_s, limit_s or variant.healthy_within_s)
        if self._clock.now_ms() - self._taken_up[instance.key] > within_s * 1000:
            return f"The server did not answer /ping within {within_s} s; see its logs"
        return ""

    async def _started(self, endpoint: Endpoint, variant: Variant, instance: Instance) -> None:
        """Start an instance, once per process: this also completes a launch that a kill interrupted.

        Raises:
            MachinesBusy: The machines that fit run other instances. The request keeps its place in the queue.
        """
        if instance.key in self._taken_up:
            return
        now_ms = self._clock.now_ms()
        asked_ms, reason = self._queued.get(instance.key, (0, ""))
        if reason and now_ms - asked_ms < _BUSY_S * 1000:
            raise MachinesBusy(reason)
        try:
            await self._instances.start(endpoint, variant, instance)
        except MachinesBusy as busy:
            self._queued[instance.key] = now_ms, str(busy)
            if str(busy) != reason:
                _log.info("endpoint.waits_for_machines", name=endpoint.name, reason=str(busy))
            raise
        self._queued.pop(instance.key, None)
        self._taken_up[instance.key] = self._clock.now_ms()
        faults.point("control.endpoint.launched")

    async def _note_wait(self, key: str, endpoint: Endpoint, instance: Instance, reason: str) -> None:
        if (endpoint.waits or {}).get(instance.job_id, "") != reason:
            await self._change(key, lambda now: now.waiting(instance, reason))

    async def _watch(self, key: str, endpoint: Endpoint, serving: Deployment) -> None:
        """Check the instances of the serving deployment, and replace those that died."""
        for variant in serving.variants:
            for instance in variant.instances:
                failure = (
                    await self._silent(endpoint, variant, instance)
                    if instance.ready
                    else await self._warmed(key, endpoint, variant, instance, None)
                )
                if failure:
                    await self._retire_dead(key, instance, failure)

    async def _silent(self, endpoint: Endpoint, variant: Variant, instance: Instance) -> str:
        """Return why an instance that was ready has failed; empty if it has not."""
        try:
            await self._started(endpoint, variant, instance)
        except (DataMissing, LaunchError) as error:
            return str(error)
        if failure := failure_of(await self._instances.observe(instance)):
            return failure
        if not self._replacements.ping_due(instance, every_s=_LOOK_S):
            return ""
        answers = await self._instances.healthy(instance)
        self._traffic.suspect(instance, suspected=not answers)
        if self._replacements.silent_s(instance, answers=answers) > _UNHEALTHY_S:
            return f"The server did not answer /ping for {_UNHEALTHY_S:g} s; see its logs"
        return ""

    async def _retire_dead(self, key: str, instance: Instance, reason: str) -> None:
        """Retire an instance that died. The endpoint fails if no instance is left and replacements keep dying."""
        again = self._replacements.died(key, instance)
        endpoint = await self._change(key, lambda now: now.retired(instance))
        _log.warning("endpoint.instance_lost", endpoint=key, instance=instance.job_id, reason=reason)
        serving = endpoint.serving if endpoint else None
        if not again and serving is not None and not any(each.ready for each in serving.instances):
            await self._change(key, lambda now: now.failed(reason))
            _log.warning("endpoint.failed", endpoint=key, reason=reason)

    async def _retire(self, key: str, instance: Instance) -> None:
        """Ask a retired instance to end; forget it when it has."""
        faults.point("control.endpoint.drained")
        if not await self._instances.ended(instance):
            return
        endpoint = self._endpoint(key)
        if endpoint is None:
            return
        if sum(each.job_id == instance.job_id for each in endpoint.instances) == 1:
            await self._instances.reap(instance.job_id)
            await self._records.change(lambda transaction: end_keys(transaction, instance.job_id))
        faults.point("control.endpoint.ended")
        await self._change(key, lambda now: now.cleared(instance))
        faults.point("control.endpoint.retired")
        self._forget(instance)

    async def _removed(self, endpoint: Endpoint) -> bool:
        """Stop the running instances; delete the endpoint and return True once all have ended."""
        if not all([await self._instances.ended(each) for each in endpoint.instances]):
            return False
        for job_id in endpoint.owns:
            await self._instances.reap(job_id)
        await self._records.change(lambda transaction: _remove(transaction, endpoint))
        faults.point("control.endpoint.deleted")
        for instance in endpoint.instances:
            self._forget(instance)
        self._traffic.forget_endpoint(endpoint)
        self._serverless.forget(endpoint.endpoint_id)
        self._replacements.forget(_key(endpoint))
        return True

    def _forget(self, instance: Instance) -> None:
        self._taken_up.pop(instance.key, None)
        self._queued.pop(instance.key, None)
        self._traffic.forget(instance)
        self._replacements.forget_instance(instance)

    async def _give_up(self, key: str, reason: str) -> None:
        """Abandon the starting deployment: the endpoint keeps the serving one, or fails without one."""
        _log.warning("endpoint.deployment_failed", endpoint=key, reason=reason)
        await self._change(key, lambda now: now.rolled_back(reason) if now.starting else now)
        faults.point("control.endpoint.rolled_back")

    async def _change(self, key: str, change: _Change) -> Endpoint | None:
        """Change the stored endpoint, unless it is deleted or Deleting. Return the stored endpoint."""
        name, _, endpoint_id = key.partition("/")

        def change_record(record: Record) -> Record | None:
            now = Endpoint.from_document(record.document)
            if now.endpoint_id != endpoint_id or now.status is EndpointStatus.DELETING:
                return None
            new = change(now)
            return None if new == now else endpoint_record(new)

        record = await self._records.update(ENDPOINT, name, change_record)
        found = Endpoint.from_document(record.document) if record else None
        return found if found is not None and found.endpoint_id == endpoint_id else None

    def _endpoint(self, key: str) -> Endpoint | None:
        name, _, endpoint_id = key.partition("/")
        # The order matters: the record of a Deleting endpoint may move from its name to its id, but never back.
        for kind, record_name in ((ENDPOINT, name), (ENDPOINT_REMOVAL, endpoint_id)):
            record = self._records.get(kind, record_name)
            endpoint = Endpoint.from_document(record.document) if record else None
            if endpoint is not None and endpoint.endpoint_id == endpoint_id:
                return endpoint
        return None


def _key(endpoint: Endpoint) -> str:
    """Key of an endpoint's task. It contains the id, as another endpoint may take the name."""
    return f"{endpoint.name}/{endpoint.endpoint_id}"


def _remove(transaction: Transaction, endpoint: Endpoint) -> None:
    """Delete the records and keys of a removed endpoint, but not the records of a new endpoint with its name."""
    for job_id in endpoint.owns:
        end_keys(transaction, job_id)
    record = transaction.get(ENDPOINT, endpoint.name)
    if record is not None and Endpoint.from_document(record.document).endpoint_id == endpoint.endpoint_id:
        transaction.delete(ENDPOINT, endpoint.name)
        delete_tags(transaction, endpoint.arn)
    transaction.delete(ENDPOINT_REMOVAL, endpoint.endpoint_id)
