"""Assemble the server: find and load models, listen, and shut down gracefully."""

import asyncio
import contextlib
import gc
import json
import os
import signal
import time
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tidemill_serving._shared.http.listener import Listener
from tidemill_serving.batch_queue import BatchingParameters
from tidemill_serving.batch_threads import BatchThreads
from tidemill_serving.engine import open_engine
from tidemill_serving.errors import StartFailed
from tidemill_serving.http.listener import bind_tcp, bind_unix, new_listener
from tidemill_serving.metrics import DEFAULT_PATH
from tidemill_serving.options import ServerOptions
from tidemill_serving.processors import num_processors
from tidemill_serving.report import event, print_batching, print_line, report_json
from tidemill_serving.served import Served
from tidemill_serving.user_code import find_code
from tidemill_serving.versions.batching_file import read_batching_file
from tidemill_serving.versions.config import read_text_message

if TYPE_CHECKING:
    pass

_MAX_SLOTS = 256
_WAIT = 0.8  # share of the time for an answer that a request may wait for its run
_ALL_ADDRESSES = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104  # a loopback address of each
_ANSWER_MARGIN_S = 5.0


async def serve(options: ServerOptions, environment: Mapping[str, str]) -> int:
    """Load every model and answer requests until SIGTERM or SIGINT.

    Returns:
        The exit status: 0 if every received request was answered, 1 if some were cut off.

    Raises:
        StartFailed: There is no model, a model or user code does not load, or an address cannot be listened on.
    """
    begin = time.monotonic()
    loop = asyncio.get_running_loop()
    stop = _stop_on_signals(loop)
    np.seterr(over="ignore")  # a JSON number above float32's range becomes Infinity, as in TF Serving
    for name, reason in options.without_effect.items():
        event("variable.ignored", name=name, value=json.dumps(environment[name]), reason=json.dumps(reason))
    has_archive = not options.multi_model and options.managed is None
    code = None if not has_archive else find_code(options, environment, event=event, warn=print_line)
    engine = open_engine(
        options.engine,
        parallelism=options.parallelism,
        op_libraries=options.op_libraries,
        formats=options.formats,
        session_config=options.session_config,
    )
    report_json()
    event("engine.ready", engine=engine.name, runs_on=json.dumps(engine.description))
    batching = options.batching if options.batching_file is None else read_batching_file(options.batching_file)
    threads = _threads(batching, longest_wait_s=options.limits.answer_timeout_s * _WAIT)
    if batching is not None:
        print_batching(batching)
    async with contextlib.AsyncExitStack() as cleanup:
        cleanup.callback(threads.close)
        served = Served(options, environment, engine, threads, batching, cleanup, metrics_path=_metrics_path(options))
        if not await _unless_stopped(_in_time(served.load(), options.start_timeout_s), stop):
            return 0
        limits = options.limits
        if options.multi_model or code is not None:
            # A request may wait for a handler for the timeout and then run in it as long; or it may load a model.
            timeout_s = max(2 * options.handlers.timeout_s, options.load_timeout_s if options.multi_model else 0)
            limits = replace(limits, answer_timeout_s=timeout_s + _ANSWER_MARGIN_S)
            if not await _unless_stopped(served.open_ports(code), stop):
                return 0
        elif options.listens_for_grpc:
            await served.open_grpc(for_code=False)
        listener = new_listener(served.application, limits=limits, loop=loop)
        addresses = await _listen(listener, options, cleanup)
        if addresses:
            served.report_examples(_callable_address(addresses[-1], options.host))
        # Not after versions that are loaded later: it would remove pages that current requests use.
        engine.release_memory()
        gc.collect()
        gc.freeze()  # loaded objects stay alive: exclude them from later collections
        event("server.ready", seconds=f"{time.monotonic() - begin:.2f}", address=",".join(addresses))
        print_line("Entering the event loop")
        await stop.wait()
        served.api.ready = False
        event("server.draining")
        in_time = await listener.drain(grace_s=options.drain_grace_s, timeout_s=options.drain_timeout_s)
        in_time = await served.drain_grpc() and in_time
    event("server.stopped", every_request_answered=str(in_time).lower())
    return 0 if in_time else 1


def _threads(batching: BatchingParameters | None, *, longest_wait_s: float) -> BatchThreads:
    """Return the threads for runs; those of batching parameters count runs, however many processors each takes."""
    if batching is None:
        return BatchThreads(slots=min(num_processors(), _MAX_SLOTS), longest_wait_s=longest_wait_s)
    return BatchThreads(slots=min(batching.threads, _MAX_SLOTS), wide_slots=1, longest_wait_s=longest_wait_s)


def _metrics_path(options: ServerOptions) -> str | None:
    """Return the path of the metrics: TF Serving's default, unless a monitoring configuration overrides it."""
    if options.monitoring_config is None:
        return DEFAULT_PATH
    config = read_text_message(options.monitoring_config, "MonitoringConfig").prometheus_config
    path = config.path or DEFAULT_PATH
    if not path.startswith("/"):
        raise StartFailed(f"{options.monitoring_config}: path {path!r} does not begin with /")
    return path if config.enable else None


async def _in_time(loading: Coroutine[Any, Any, None], timeout_s: float | None) -> None:
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            await loading
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise StartFailed(
            f"the models were not loaded within {timeout_s} s: allow more by SAGEMAKER_TFS_WAIT_TIME_SECONDS"
        ) from error


async def _unless_stopped(starting: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Wait for the start; return False if a stop is requested first."""
    start, stopped = asyncio.ensure_future(starting), asyncio.ensure_future(stop.wait())
    await asyncio.wait((start, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not start.done():
        start.cancel()
        await asyncio.wait((start,))
        return False
    start.result()
    return True


async def _listen(listener: Listener, options: ServerOptions, cleanup: contextlib.AsyncExitStack) -> list[str]:
    addresses = []
    if options.unix_socket is not None:
        await listener.open(bind_unix(options.unix_socket))
        cleanup.callback(options.unix_socket.unlink, missing_ok=True)
        addresses.append(f"unix:{options.unix_socket}")
    if options.port is not None:
        sock = bind_tcp(options.host, options.port)
        address = f"{_in_url(options.host)}:{sock.getsockname()[1]}"
        addresses.append(f"http://{address}")
        await listener.open(sock)
        print_line(f"Exporting HTTP/REST API at:{address} ...")
    if not addresses and not options.listens_for_grpc:
        raise StartFailed("nowhere to listen: give --unix-socket, --port, --grpc-port or --grpc-socket-path")
    return addresses


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _callable_address(address: str, host: str) -> str:
    """Return an address that clients of this machine can call, for one to listen on."""
    if address.startswith("http://") and host in _ALL_ADDRESSES:
        return f"http://{_ALL_ADDRESSES[host]}:{address.rpartition(':')[2]}"
    return address


def _stop_on_signals(loop: asyncio.AbstractEventLoop) -> asyncio.Event:
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(1)  # second signal: exit immediately
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return stop
