"""Route a request to a variant by weight, and to one of its instances.

A request is retried on another instance only if the first instance received no part of it.
"""

import asyncio
import collections
import contextlib
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

from tidemill.control.endpoints.call_counts import CallCounts
from tidemill.control.endpoints.instances import Instances, ref_of
from tidemill.control.endpoints.invocations import Invocations
from tidemill.control.endpoints.serverless import Serverless
from tidemill.control.endpoints.signatures import ServedModels
from tidemill.control.invoker import Answer, Unreachable
from tidemill.control.target_models import TargetModels, model_name
from tidemill.core.clock import Clock
from tidemill.core.hosting import Endpoint, Instance, Variant
from tidemill.core.instances import ObjectReference
from tidemill.errors import AwsError, LaunchError

_PAUSE_S = 0.1
_COLD_START_S = 180.0
_LOAD_TIMEOUT_S = 310.0  # the server stops loading a model after 300 s
_LEAST_OUTSTANDING = "LEAST_OUTSTANDING_REQUESTS"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """A request to a model.

    Attributes:
        body: Body of the request.
        headers: HTTP headers of the request.
        timeout_s: Time limit of the model's answer in seconds. Loading the model first does not count.
        variant: TargetVariant; empty chooses a variant by weight.
        target: TargetModel of a multi-model endpoint: the part of the archive's key after ModelDataUrl; else empty.
        inference_id: InferenceId, stored with captured data; may be empty.
    """

    body: bytes
    headers: Mapping[str, str]
    timeout_s: float
    variant: str = ""
    target: str = ""
    inference_id: str = ""


class EndpointTraffic:
    """Routes requests.

    Args:
        instances: Sends requests to instances.
        models: Loads models into the servers of multi-model endpoints.
        archive_of: Returns the archive of a target model.
        serverless: Counts the requests of serverless variants.
        invocations: Counts the requests of variants that scale automatically.
        awaken: Adds an instance to a serverless variant without instances.

    Attributes:
        counts: Counts the requests of all variants.
        served: Asks servers about their models.
    """

    def __init__(
        self,
        instances: Instances,
        models: TargetModels,
        archive_of: Callable[[Variant, str], ObjectReference],
        *,
        serverless: Serverless,
        invocations: Invocations,
        awaken: Callable[[Endpoint, Variant], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._instances = instances
        self._serverless = serverless
        self._invocations = invocations
        self.counts = CallCounts(clock)
        self._awaken = awaken
        self._models = models
        self._archive_of = archive_of
        self.served = ServedModels(instances, archive_of)
        self._shares: dict[str, dict[str, float]] = {}
        self._turns: collections.Counter[tuple[str, str]] = collections.Counter()
        self._busy: collections.Counter[tuple[str, int]] = collections.Counter()
        self._suspects: set[tuple[str, int]] = set()

    def in_flight(self, instance: Instance) -> int:
        """Return the number of requests that an instance is working on.

        Args:
            instance: The instance.
        """
        return self._busy[instance.key]

    def suspect(self, instance: Instance, *, suspected: bool) -> None:
        """Set whether an instance is suspected dead because it missed a /ping; other instances are then preferred.

        Args:
            suspected: Whether it is suspected.
        """
        (self._suspects.add if suspected else self._suspects.discard)(instance.key)

    def forget(self, instance: Instance) -> None:
        """Drop the state of an instance.

        Args:
            instance: The instance.
        """
        self._suspects.discard(instance.key)

    def forget_endpoint(self, endpoint: Endpoint) -> None:
        """Drop the state of an endpoint.

        Args:
            endpoint: The endpoint.
        """
        self._shares.pop(endpoint.endpoint_id, None)
        self.counts.forget(endpoint.name)
        for key in [each for each in self._turns if each[0] == endpoint.endpoint_id]:
            del self._turns[key]

    async def send(self, current: Callable[[], Endpoint], call: ModelCall) -> tuple[Answer, Variant]:
        """Send a request to one of the endpoint's servers.

        Args:
            current: Returns the stored endpoint; called again while no instance accepts the request. Raises once the
                endpoint no longer accepts requests.
            call: The request.

        Returns:
            The answer, and the variant that produced it.

        Raises:
            AwsError: ModelError if no server answers in time; ValidationError if the variant does not exist, or if
                TargetModel is missing or not supported by the variant.
            DataMissing: The archive of the target model does not exist.
        """
        endpoint = current()
        variant = self._choose(endpoint, call)
        _check_target(endpoint.name, variant, call.target)
        archive = self._archive_of(variant, call.target) if call.target else None
        self._invocations.note(endpoint.endpoint_id, variant)
        try:
            with (
                self.counts.counted(endpoint.name, variant.name) as counted,
                self._serverless.admitted(endpoint.endpoint_id, variant),
            ):
                if not variant.instances and variant.serverless is not None:
                    await self._awaken(endpoint, variant)
                answer = await self._deliver(current, endpoint.endpoint_id, variant, call, archive)
                counted.status = answer.status
                return answer, variant
        except (LaunchError, Unreachable, TimeoutError) as error:
            reason = str(error) or f"the model did not answer within {call.timeout_s:g} s"
            raise AwsError(f"Received no answer from primary: {reason}", code="ModelError") from error

    async def _deliver(
        self,
        current: Callable[[], Endpoint],
        endpoint_id: str,
        variant: Variant,
        call: ModelCall,
        archive: ObjectReference | None,
    ) -> Answer:
        tried: set[tuple[str, int]] = set()
        while True:
            instance = self._pick(endpoint_id, variant, archive, tried)
            if instance is None:
                within_s = max(call.timeout_s, _COLD_START_S) if variant.serverless else call.timeout_s
                instance = await self._wait_until_healthy(current, variant, archive, within_s=within_s)
            try:
                with self._counted(instance):
                    return await self._invoke(instance, call, archive)
            except Unreachable as error:
                if error.sent:
                    raise
                tried.add(instance.key)
                self.suspect(instance, suspected=True)  # until it answers a /ping

    async def _invoke(self, instance: Instance, call: ModelCall, archive: ObjectReference | None) -> Answer:
        async def ask(path: str) -> Answer:
            return await self._instances.send(
                instance, "POST", path, call.body, headers=call.headers, timeout_s=call.timeout_s
            )

        async def send(method: str, path: str, body: bytes, *, headers: Mapping[str, str] | None = None) -> Answer:
            return await self._instances.send(
                instance, method, path, body, headers=headers or {}, timeout_s=_LOAD_TIMEOUT_S
            )

        if archive is None:
            return await ask("/invocations")
        return await self._models.invoke(ref_of(instance), archive, ask=ask, send=send)

    async def _wait_until_healthy(
        self, current: Callable[[], Endpoint], variant: Variant, archive: ObjectReference | None, *, within_s: float
    ) -> Instance:
        """Wait until an instance of the variant answers /ping; it may be a replacement started meanwhile."""
        async with asyncio.timeout(within_s):
            while True:
                endpoint = current()
                now = (endpoint.serving.find(variant.name) if endpoint.serving else None) or variant
                instance = self._pick(endpoint.endpoint_id, now, archive, set())
                if instance is not None and await self._instances.healthy(instance):
                    return instance
                await asyncio.sleep(_PAUSE_S)

    @contextlib.contextmanager
    def _counted(self, instance: Instance) -> Generator[None]:
        self._busy[instance.key] += 1
        try:
            yield
        finally:
            self._busy[instance.key] -= 1
            if not self._busy[instance.key]:
                del self._busy[instance.key]

    def _choose(self, endpoint: Endpoint, call: ModelCall) -> Variant:
        assert endpoint.serving is not None, "an endpoint that takes requests has something that serves"
        variants = endpoint.serving.variants
        if call.variant:
            return _named(endpoint.name, variants, call.variant)
        if len(variants) == 1:
            return variants[0]
        weighted = [each for each in variants if each.weight > 0]
        return self._next_by_weight(endpoint.endpoint_id, [each for each in weighted if each.instances] or weighted)

    def _next_by_weight(self, endpoint_id: str, variants: Sequence[Variant]) -> Variant:
        """Choose a variant so that, in any run of requests, each variant's count is within one of its share."""
        shares = self._shares.setdefault(endpoint_id, {})
        total = sum(each.weight for each in variants)
        for each in variants:
            shares[each.name] = shares.get(each.name, 0.0) + each.weight / total
        chosen = max(variants, key=lambda each: shares[each.name])
        shares[chosen.name] -= 1
        return chosen

    def _pick(
        self, endpoint_id: str, variant: Variant, archive: ObjectReference | None, tried: set[tuple[str, int]]
    ) -> Instance | None:
        """Choose an untried instance, suspected ones last. Return None if all were tried."""
        left = [each for each in variant.instances if each.key not in tried]
        if not left:
            return None
        good = [each for each in left if each.ready and each.key not in self._suspects] or left
        if archive is not None:
            # The same model always goes to the same instance, so that only one instance loads it.
            return good[int(model_name(archive), 16) % len(good)]
        turn = self._turns[endpoint_id, variant.name]
        self._turns[endpoint_id, variant.name] += 1
        in_turn = [good[(turn + offset) % len(good)] for offset in range(len(good))]
        if variant.request.get("RoutingConfig", {}).get("RoutingStrategy") == _LEAST_OUTSTANDING:
            return min(in_turn, key=self.in_flight)
        return in_turn[0]


def _named(endpoint_name: str, variants: Sequence[Variant], name: str) -> Variant:
    for variant in variants:
        if variant.name == name:
            return variant
    known = ", ".join(repr(each.name) for each in variants)
    raise _invalid(f"Variant {name!r} is not found on endpoint {endpoint_name}; it has {known}")


def _check_target(endpoint_name: str, variant: Variant, target: str) -> None:
    """Check that a request has a TargetModel if, and only if, the variant is multi-model."""
    if target and not variant.is_multi_model:
        raise _invalid(
            f"Endpoint {endpoint_name} is not a multi-model endpoint and does not support target model {target!r};"
            " leave TargetModel out, or create the model with Mode MultiModel"
        )
    if variant.is_multi_model and not target:
        raise _invalid(
            f"Endpoint {endpoint_name} is a multi-model endpoint: name a model by TargetModel, the rest of its key"
            f" behind {variant.container['ModelDataUrl']}"
        )


def _invalid(message: str) -> AwsError:
    return AwsError(message, code="ValidationError")
