"""Ten times as many requests as a server can answer, by REST and by gRPC."""

import asyncio
import json
import re
from typing import Any

import grpc
import pytest
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from polling import poll

Server = Any  # a ServerProcess of conftest.py
DEADLINE_S = 120
TURNS = (60, 61, 62, 63)  # of the model `spin`: 10 ms or more
TIMES_CAPACITY = 10
ENOUGH = 50  # refusals by each of the two APIs
REASON = "more requests arrive than the model can answer; send fewer at a time, or try again later"


class Load:
    """Sends ten requests for each that is answered, until enough are refused: an overload on any machine."""

    def __init__(self, server: Server, traces: dict[int, float]) -> None:
        self.port = server.port
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}")
        self.stub = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.traces = traces
        self.connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.sent = self.accepted = 0
        self.refused = {"REST": 0, "gRPC": 0}

    @property
    def is_over(self) -> bool:
        return min(self.refused.values()) >= ENOUGH

    async def run(self) -> None:
        self.send(TIMES_CAPACITY)
        while self.tasks:
            done, _ = await asyncio.wait(self.tasks, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
            assert done, f"{len(self.tasks)} of {self.sent} requests have no answer"
            self.tasks -= done
            for task in done:
                task.result()
        for _, writer in self.connections:
            writer.close()
        await self.channel.close()

    def send(self, number: int) -> None:
        for _ in range(number):
            turns = TURNS[self.sent % len(TURNS)]
            call = self.by_rest if self.sent // len(TURNS) % 2 else self.by_grpc
            self.sent += 1
            self.tasks.add(asyncio.ensure_future(call(turns)))

    def answered(self, turns: int, trace: float) -> None:
        assert trace == pytest.approx(self.traces[turns], rel=1e-5)
        self.accepted += 1
        if not self.is_over:
            self.send(TIMES_CAPACITY)

    async def by_rest(self, turns: int) -> None:
        free = self.connections.pop() if self.connections else await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = free
        body = b'{"inputs": %d}' % turns
        writer.write(
            b"POST /v1/models/spin:predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = re.search(r"content-length: (\d+)", head)
        assert size is not None
        answer = json.loads(await reader.readexactly(int(size[1])))
        self.connections.append(free)
        if head.startswith("http/1.1 200"):
            self.answered(turns, answer["outputs"])
            return
        assert head.startswith("http/1.1 503"), head
        wait_s = re.search(r"retry-after: (\d+)\r\n", head)
        assert wait_s is not None, head
        assert int(wait_s[1]) >= 1
        assert answer == {"error": REASON}
        self.refused["REST"] += 1

    async def by_grpc(self, turns: int) -> None:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "spin"
        request.inputs["turns"].CopyFrom(tensor_pb2.TensorProto(dtype=types_pb2.DT_INT32, int_val=[turns]))
        try:
            response = await self.stub.Predict(request, timeout=DEADLINE_S)
        except grpc.aio.AioRpcError as error:
            assert (error.code(), error.details()) == (grpc.StatusCode.UNAVAILABLE, REASON)
            self.refused["gRPC"] += 1
        else:
            self.answered(turns, response.outputs["trace"].float_val[0])


def state_of_spin(server: Server) -> Any:
    signatures = server.get("/monitoring/scheduling").json["signatures"]
    return next(each for each in signatures if each["model"] == "spin")


def test_an_overload_is_refused_in_part_and_leaves_nothing(server: Server) -> None:
    def ask(turns: int) -> float:
        answer = server.predict("spin", {"inputs": turns})
        assert answer.status == 200, answer.body
        return float(answer.json["outputs"])

    before = state_of_spin(server)["refused"]
    traces = {turns: ask(turns) for turns in TURNS}

    async def overload() -> Load:
        load = Load(server, traces)
        await load.run()
        return load

    load = asyncio.run(overload())
    assert load.accepted + sum(load.refused.values()) == load.sent
    assert state_of_spin(server)["refused"] - before == sum(load.refused.values())
    for turns in TURNS:
        assert ask(turns) == pytest.approx(traces[turns], rel=1e-5)

    def has_recovered() -> bool:
        ask(TURNS[0])
        return not state_of_spin(server)["overloaded"]

    poll(has_recovered)
    server.line("signature.overloaded model=spin")
    server.line("signature.recovered model=spin")
