"""How many calls may be in progress, and what becomes of them at the end. The calls wait as long as the test wants."""

import asyncio
import threading

from frames_of_clients import RST_STREAM, RawClient, block, frame, number, prefixed
from tensorflow_serving.apis import get_model_metadata_pb2

from tidemill_serving.errors import Code, not_found
from tidemill_serving.grpc_api.server import GrpcServer
from tidemill_serving.grpc_api.settings import GrpcSettings
from tidemill_serving.messages.definitions import forget_hollow_package
from tidemill_serving.metrics import Metrics
from tidemill_serving.registry import Registry, Servable

METADATA = "/tensorflow.serving.PredictionService/GetModelMetadata"
DEADLINE_S = 20


class WaitingRegistry(Registry):
    """Searches for a model as long as the test wants."""

    def __init__(self) -> None:
        super().__init__([], default_name="")
        self.searches = 0
        self.searching, self.go_on = threading.Event(), threading.Event()

    def lease(self, name: str, version: int | None, *, label: str | None = None) -> Servable:
        self.searches += 1
        self.searching.set()
        self.go_on.wait(DEADLINE_S)
        raise not_found(name)


def test_calls_above_the_limit_are_refused_and_waiting_ones_may_be_cancelled() -> None:
    forget_hollow_package()  # this process has the messages of tensorflow-serving-api, as processes of user code may
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "absent"
    message, headers = prefixed(request.SerializeToString()), block(METADATA)
    registry = WaitingRegistry()

    async def main() -> tuple[dict[str, str], bool, bool]:
        loop = asyncio.get_running_loop()
        settings = GrpcSettings(threads=1, waiting=1)
        server, other = (GrpcServer(registry, Metrics(), loop=loop, settings=settings, reload=None) for _ in range(2))
        await server.start()
        await other.start()
        async with asyncio.timeout(DEADLINE_S):
            client = await asyncio.to_thread(RawClient, server.port)
            client.call(1, message, headers)
            assert await asyncio.to_thread(registry.searching.wait, DEADLINE_S)
            client.call(3, message, headers)
            client.call(5, message, headers)
            refused, _ = await asyncio.to_thread(client.answer, 5)
            client.send(frame(RST_STREAM, 0, 3, number(8)))
            client.call(7, message, block("/none"))
            await asyncio.to_thread(client.answer, 7)  # so the reset has been read
            too_soon = await server.drain(timeout_s=0.2)
            in_time = await other.drain(timeout_s=DEADLINE_S)
            registry.go_on.set()
            client.close()
        return refused, too_soon, in_time

    refused, too_soon, in_time = asyncio.run(main())
    assert refused["grpc-status"] == str(Code.UNAVAILABLE.number)
    assert refused["grpc-message"] == "2 calls are in progress; try again later"
    assert (too_soon, in_time) == (False, True)
    assert registry.searches == 1
