"""Start, call and stop the instances of endpoints through an executor."""

import asyncio
from collections.abc import Mapping

from tidemill.control.full_disk import delayed_by_full_disk
from tidemill.control.invoker import Answer, Invoker, Unreachable
from tidemill.control.plan import ServerPlanner
from tidemill.control.server_keys import ServerKeys, ServerVariables
from tidemill.core.hosting import Endpoint, Instance, Variant
from tidemill.core.instances import InstanceRef
from tidemill.core.job_scope import JobScope
from tidemill.executors.base import Executor
from tidemill.instance.status import InstanceStatus, StopReason

_GET_TIMEOUT_S = 10.0


class Instances:
    """Runs and calls instances.

    Args:
        planner: Creates their specs.
        keys: Issues their keys; None gives them none.
    """

    def __init__(self, executor: Executor, planner: ServerPlanner, keys: ServerKeys | None) -> None:
        self._executor = executor
        self._planner = planner
        self._keys = keys
        self._invokers: dict[InstanceRef, Invoker] = {}
        self._asked: set[InstanceRef] = set()

    async def start(self, endpoint: Endpoint, variant: Variant, instance: Instance) -> None:
        """Launch an instance; if it was launched already, complete that launch.

        Raises:
            DataMissing: The model archive does not exist.
            LaunchError: The instance cannot be started.
            ServiceUnavailable: The disk is full.
        """
        ref = ref_of(instance)
        if self._executor.observe(ref).launched:
            self._executor.relaunch(ref)
            return
        with delayed_by_full_disk(f"endpoint {endpoint.name}"):
            variables = await self._issue_keys(endpoint, variant, instance)
            spec = await asyncio.to_thread(
                self._planner.plan_endpoint, endpoint, variant, instance, variables=variables
            )
            await asyncio.to_thread(self._executor.launch, [spec])

    async def renew_keys(self, endpoint: Endpoint) -> None:
        """Extend the validity of the keys of all instances, if necessary.

        Args:
            endpoint: The endpoint.
        """
        if self._keys is not None:
            for instance in endpoint.instances:
                await self._keys.renew(instance.job_id)

    async def observe(self, instance: Instance) -> InstanceStatus:
        """Return the reported status of an instance.

        Args:
            instance: The instance.
        """
        return await asyncio.to_thread(self._executor.observe, ref_of(instance))

    async def healthy(self, instance: Instance) -> bool:
        """Return whether an instance answers /ping with 200.

        Args:
            instance: The instance.
        """
        try:
            return (await self.get(instance, "/ping")).status == 200
        except (Unreachable, TimeoutError):
            return False

    async def get(self, instance: Instance, path: str) -> Answer:
        """Send a GET request to an instance, which has ten seconds to answer.

        Args:
            path: Path of the model's server.

        Raises:
            Unreachable: The server does not accept the request.
            TimeoutError: It did not answer in time.
        """
        return await self._invoker(ref_of(instance)).get(path, timeout_s=_GET_TIMEOUT_S)

    async def send(
        self, instance: Instance, method: str, path: str, body: bytes, *, headers: Mapping[str, str], timeout_s: float
    ) -> Answer:
        """Send a request to an instance. Arguments, result and exceptions are those of `Invoker.send`.

        Args:
            method: ``GET`` or ``POST``.
            path: Path of the model's server.
            body: Body of the request.
            headers: Headers of the request.

        Raises:
            Unreachable: If the server does not accept the request.
        """
        return await self._invoker(ref_of(instance)).send(method, path, body, headers=headers, timeout_s=timeout_s)

    async def ended(self, instance: Instance) -> bool:
        """Ask an instance to end after answering its requests. Return whether it has ended.

        Args:
            instance: The instance.
        """
        ref = ref_of(instance)
        state = await self.observe(instance)
        if state.launched and state.running and state.exit is None:
            if ref not in self._asked:
                await asyncio.to_thread(self._executor.stop, ref, reason=StopReason.STOPPED)
                self._asked.add(ref)
            return False
        self._asked.discard(ref)
        if ref in self._invokers:
            self._invokers.pop(ref).close()
        return True

    async def reap(self, job_id: str) -> None:
        """Remove the files of ended instances.

        Args:
            job_id: Id of the instance's job.
        """
        await asyncio.to_thread(self._executor.reap, job_id)

    def close(self) -> None:
        """Close all connections; the instances run on."""
        for invoker in self._invokers.values():
            invoker.close()

    async def _issue_keys(self, endpoint: Endpoint, variant: Variant, instance: Instance) -> ServerVariables:
        if self._keys is None:
            return ServerVariables({}, {})
        deployment = endpoint.deployment_of(instance)
        scope = JobScope.of_endpoint(
            endpoint.name,
            capture=deployment.capture if deployment else None,
            asynchronous=deployment.asynchronous if deployment else None,
        )
        environment = variant.container.get("Environment", {})
        return await self._keys.issue(instance.job_id, model=variant.model, environment=environment, scope=scope)

    def _invoker(self, ref: InstanceRef) -> Invoker:
        address = self._executor.server_address(ref)
        if address is None:
            raise Unreachable("the endpoint's server has not reported its address yet", sent=False)
        known = self._invokers.get(ref)
        if known is not None and known.address == address:
            return known
        if known is not None:  # its relay listens on another port
            known.close()
        self._invokers[ref] = Invoker(address)
        return self._invokers[ref]


def ref_of(instance: Instance) -> InstanceRef:
    """Return an executor's reference to an instance.

    Args:
        instance: An instance of an endpoint.
    """
    return InstanceRef(instance.job_id, instance.index)


def failure_of(state: InstanceStatus) -> str:
    """Return why an instance ended; empty if it has not.

    Args:
        state: The reported status.
    """
    if state.exit is not None:
        return state.exit.failure or "The server ended"
    return state.loss
