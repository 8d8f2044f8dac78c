"""The endpoint's log: one line on standard output per event."""

import json
import sys
from collections.abc import Mapping

from tidemill_serving.batch_queue import BatchingParameters
from tidemill_serving.engine.placement import Placement
from tidemill_serving.models import ModelVersion
from tidemill_serving.options import ServerOptions
from tidemill_serving.registry import Registry, Servable
from tidemill_serving.rest.example_request import example_command, example_request
from tidemill_serving.rest.native_library import load_native_json

_LINE_ENDS = str.maketrans({"\n": r"\n", "\r": r"\r"})


def event(name: str, /, **fields: object) -> None:
    """Print an event.

    Args:
        name: Name of the event, e.g. ``server.ready``.
    """
    shown = (f"{key}={value}".translate(_LINE_ENDS) for key, value in fields.items())
    print_line(" ".join([name, *shown]))


def print_line(line: str) -> None:
    """Print a line at once.

    Args:
        line: The line without LF.
    """
    print(line, file=sys.stdout, flush=True)  # noqa: T201  # standard output is the endpoint's log


def print_batching(batching: BatchingParameters) -> None:
    """Log the parameters as SageMaker's container does."""
    for name, value in (
        ("max_batch_size", batching.max_batch_size),
        ("batch_timeout_micros", round(batching.timeout_s * 1e6)),
        ("num_batch_threads", batching.threads),
        ("max_enqueued_batches", batching.max_enqueued_batches),
    ):
        print_line(f"{name} {{ value: {value} }}")


def report_json() -> None:
    """Load, and if necessary compile, the native library now, and log whether JSON parsing is native."""
    library = load_native_json()
    if isinstance(library, str):
        event("json.python", reason=json.dumps(library, ensure_ascii=False))
    else:
        event("json.native", source=library.source)


def report_grpc(options: ServerOptions, *, port: int) -> None:
    """Log where gRPC is served to clients, and which of its arguments have no effect.

    Args:
        port: The port of gRPC.
    """
    for name, reason in options.grpc_channel.without_effect:
        event("grpc.argument_ignored", name=json.dumps(name), reason=json.dumps(reason))
    tls = str(options.grpc_tls is not None).lower()
    if options.grpc_socket is not None:
        event("grpc.ready", tls=tls, address=f"unix:{options.grpc_socket}")
        print_line(f"Running gRPC ModelServer at UNIX socket {options.grpc_socket} ...")
    if options.grpc_port is not None:
        event("grpc.ready", tls=tls, address=f"{options.host}:{port}")
        print_line(f"Running gRPC ModelServer at {options.host}:{port} ...")


def report_loaded(servable: Servable) -> None:
    """Log a loaded model: where its signatures run, which of them REST or every client cannot call, and its files.

    Args:
        servable: The model version.
    """
    for key, runner in servable.runners.items():
        report_placement(servable.version, key, runner.placement, name="signature.ready")
        fault = servable.model.signatures[key].json_fault
        if fault is not None:
            event(
                "signature.grpc_only",
                model=servable.version.name,
                version=servable.version.version,
                signature=key,
                reason=json.dumps(fault, ensure_ascii=False),
            )
    for key, reason in servable.model.unusable.items():
        event(
            "signature.unusable",
            model=servable.version.name,
            version=servable.version.version,
            signature=key,
            reason=json.dumps(reason, ensure_ascii=False),
        )
    event(
        "model.loaded",
        name=servable.version.name,
        version=servable.version.version,
        path=servable.version.place,
        seconds=f"{servable.load_s:.2f}",
    )


def report_placement(
    version: ModelVersion, signature: str, placement: Placement, *, name: str = "signature.placed"
) -> None:
    """Log where the runs of a signature take place.

    Args:
        name: Name of the event. Default: ``signature.placed``.
    """
    event(
        name,
        model=version.name,
        version=version.version,
        signature=signature,
        runs="on_loop" if placement.on_loop else "on_thread",
        pooled=str(placement.pooled).lower(),
    )


def report_schedule(version: ModelVersion, signature: str, name: str, fields: Mapping[str, object]) -> None:
    """Log a choice for the runs of a signature.

    Args:
        name: Name of the event.
        fields: What was chosen, and why.
    """
    event(name, model=version.name, version=version.version, signature=signature, **fields)


def report_twin(version: ModelVersion, error: Exception | None) -> None:
    """Log that a model has a second session, whose operations run on one thread each, or why it has none.

    Args:
        error: The reason; None if it has one.
    """
    fields = {"model": version.name, "version": version.version}
    if error is None:
        event("model.second_session", **fields, reason='"many requests at a time: each runs on one processor"')
    else:
        event("model.one_session", **fields, reason=json.dumps(str(error), ensure_ascii=False))


def report_unshared(version: ModelVersion, signature: str, reason: str) -> None:
    """Log that requests of a signature cannot share a run, and what to do.

    Args:
        reason: Why the shared run failed.
    """
    advice = (
        "runs of several requests fail although each succeeds alone, and cost double; serve this model with"
        " SAGEMAKER_TFS_ENABLE_BATCHING=false, or export it so that each row of its outputs depends on one row of input"
    )
    event(
        "batching.failed",
        model=version.name,
        version=version.version,
        signature=signature,
        reason=json.dumps(reason, ensure_ascii=False),
        advice=json.dumps(advice),
    )


class ExampleLog:
    """Logs a request that fits each model, when its newest version has changed and with it the request.

    Args:
        address: Where REST is served: ``http://HOST:PORT``, or ``unix:PATH``.
    """

    def __init__(self, registry: Registry, *, address: str) -> None:
        self._registry = registry
        self._address = address
        self._logged: dict[str, tuple[int, str]] = {}

    def update(self) -> None:
        """Log the requests of models that are new, or whose newest version asks for another request."""
        before = self._logged
        self._logged = {}
        for name in self._registry.names:
            loaded = self._registry.loaded(name)
            if not loaded:
                continue
            number, servable = next(iter(loaded.items()))
            known = before.get(name)
            if known is not None and known[0] == number:
                self._logged[name] = known
                continue
            example = example_request(servable.model)
            command = "" if example is None else example_command(name, example, address=self._address)
            self._logged[name] = (number, command)
            if command and (known is None or known[1] != command):
                event("model.example", name=name, version=number, command=command)
