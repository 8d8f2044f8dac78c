"""Put the server together: find and load models, listen, and end in order."""

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tidemill_serving.batching import BatchThreads
from tidemill_serving.engine import open_engine
from tidemill_serving.errors import StartFailed
from tidemill_serving.http.listener import Listener, bind_tcp, bind_unix
from tidemill_serving.models import default_model, find_versions
from tidemill_serving.options import Options
from tidemill_serving.registry import Registry, Servable, load_all
from tidemill_serving.rest.api import Api

__all__ = ["serve"]

_CORES_PER_SLOT = 2


async def serve(options: Options, environment: Mapping[str, str]) -> int:
    """Load every model, answer requests until SIGTERM or SIGINT, and say how it ended.

    Returns:
        The exit status: 0 when every request that had come was answered, 1 when some were cut off.

    Raises:
        StartFailed: There is no model, one does not load, or an address cannot be listened on.
    """
    begin = time.monotonic()
    loop = asyncio.get_running_loop()
    stop = _stop_on_signals(loop)
    np.seterr(over="ignore")  # a JSON number above float32's range becomes Infinity, as in TF Serving
    registry, threads = _load(options, environment, loop)
    api = Api(registry)
    listener = Listener(api, limits=options.limits, loop=loop)
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(threads.close)
        addresses = await _listen(listener, options, cleanup)
        gc.collect()
        gc.freeze()  # what was loaded stays: later collections need not look at it
        _event("server.ready", seconds=f"{time.monotonic() - begin:.2f}", address=",".join(addresses))
        _say("Entering the event loop")
        await stop.wait()
        api.ready = False
        _event("server.draining")
        in_time = await listener.drain(grace_s=options.drain_grace_s, timeout_s=options.drain_timeout_s)
    _event("server.stopped", every_request_answered=str(in_time).lower())
    return 0 if in_time else 1


def _load(
    options: Options, environment: Mapping[str, str], loop: asyncio.AbstractEventLoop
) -> tuple[Registry, BatchThreads]:
    _refuse_scripts(options.model_dir)
    versions = find_versions(options.model_dir)
    default_name = default_model(versions, environment)
    engine = open_engine(options.engine, parallelism=options.parallelism)
    threads = BatchThreads(slots=max(1, (os.cpu_count() or 1) // _CORES_PER_SLOT))
    servables = load_all(versions, engine=engine, threads=threads, loop=loop, max_rows=options.max_rows, loaded=_report)
    return Registry(servables, default_name=default_name), threads


def _refuse_scripts(model_dir: Path) -> None:
    """An archive whose author wrote handlers must not be served without them: its answers would be others."""
    script = model_dir / "code" / "inference.py"
    if script.exists():
        raise StartFailed(
            f"{script} has handlers of its own, which this version does not run: it serves SavedModels as they are."
            " Leave code/inference.py out of the model archive"
        )


def _report(servable: Servable) -> None:
    for key, runner in servable.runners.items():
        placement = runner.placement
        _event(
            "signature.ready",
            model=servable.version.name,
            version=servable.version.version,
            signature=key,
            runs="on_loop" if placement.on_loop else "on_thread",
            pooled=str(placement.pooled).lower(),
            one_row_us="unknown" if placement.one_row_s is None else round(placement.one_row_s * 1e6),
        )
    for key, reason in servable.model.unusable.items():
        _event(
            "signature.unusable",
            model=servable.version.name,
            version=servable.version.version,
            signature=key,
            reason=json.dumps(reason, ensure_ascii=False),
        )
    _event(
        "model.loaded",
        name=servable.version.name,
        version=servable.version.version,
        path=servable.version.path,
        seconds=f"{servable.load_s:.2f}",
    )


async def _listen(listener: Listener, options: Options, cleanup: contextlib.ExitStack) -> list[str]:
    addresses = []
    if options.unix_socket is not None:
        await listener.open(bind_unix(options.unix_socket))
        cleanup.callback(options.unix_socket.unlink, missing_ok=True)
        addresses.append(f"unix:{options.unix_socket}")
    if options.port is not None:
        sock = bind_tcp(options.host, options.port)
        addresses.append(f"http://{options.host}:{sock.getsockname()[1]}")
        await listener.open(sock)
    if not addresses:
        raise StartFailed("nowhere to listen: give --unix-socket or --port")
    return addresses


def _stop_on_signals(loop: asyncio.AbstractEventLoop) -> asyncio.Event:
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(1)  # asked a second time: at once
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return stop


def _event(name: str, /, **fields: object) -> None:
    _say(" ".join([name, *(f"{key}={value}" for key, value in fields.items())]))


def _say(line: str) -> None:
    print(line, file=sys.stdout, flush=True)  # noqa: T201  # standard output is the endpoint's log
