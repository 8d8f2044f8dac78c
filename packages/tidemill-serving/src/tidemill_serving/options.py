"""What the server is told: by its command line, and by SageMaker's environment variables."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidemill_serving.batching import DEFAULT_MAX_ROWS
from tidemill_serving.engine import ENGINE_NAMES, Parallelism
from tidemill_serving.errors import StartFailed
from tidemill_serving.http.limits import Limits

__all__ = ["Options", "read_options"]

_DEFAULT_PORT = 8080
_BATCHING = "SAGEMAKER_TFS_ENABLE_BATCHING"
_MAX_ROWS = "SAGEMAKER_TFS_MAX_BATCH_SIZE"
_REFUSED = {
    "SAGEMAKER_MULTI_MODEL": "multi-model endpoints are not served: give each model an endpoint of its own",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of one server.

    Attributes:
        model_dir: Where the model archive was unpacked.
        unix_socket: Listen there.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one; None listens on the unix socket only.
        engine: One of `ENGINE_NAMES`.
        parallelism: Threads of TensorFlow.
        max_rows: Most rows in a shared run; 1 switches batching off.
        drain_grace_s: Time between SIGTERM and the end of accepting connections.
        drain_timeout_s: Most time for requests that are under way at SIGTERM.
    """

    model_dir: Path
    unix_socket: Path | None = None
    host: str = "127.0.0.1"
    port: int | None = None
    engine: str = "auto"
    parallelism: Parallelism = field(default_factory=Parallelism)
    max_rows: int = DEFAULT_MAX_ROWS
    limits: Limits = field(default_factory=Limits)
    drain_grace_s: float = 1.0
    drain_timeout_s: float = 30.0


def read_options(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Read the command line and the environment.

    Raises:
        StartFailed: A variable has a value that is not allowed.
    """
    given = _parser().parse_args(arguments)
    for name, reason in _REFUSED.items():
        if environment.get(name, "").lower() == "true":
            raise StartFailed(f"{name}=true: {reason}")
    port: int | None = given.port
    if port is None and given.unix_socket is None:
        port = _number(environment, "SAGEMAKER_BIND_TO_PORT", default=_DEFAULT_PORT, minimum=0)
    return Options(
        model_dir=given.model_dir.absolute(),
        unix_socket=given.unix_socket and given.unix_socket.absolute(),
        host=given.host,
        port=port,
        engine=given.engine,
        parallelism=Parallelism(
            inter_op=_number(environment, "SAGEMAKER_TFS_INTER_OP_PARALLELISM", default=0, minimum=0),
            intra_op=_number(environment, "SAGEMAKER_TFS_INTRA_OP_PARALLELISM", default=0, minimum=0),
        ),
        max_rows=_max_rows(environment),
        limits=Limits(body_bytes=given.max_body_bytes),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tidemill_serving", description="Serve TensorFlow SavedModels.")
    parser.add_argument("--model-dir", type=Path, default=Path("/opt/ml/model"), help="directory of the model archive")
    parser.add_argument("--unix-socket", type=Path, help="listen on this unix socket")
    parser.add_argument("--port", type=int, help="listen on this port; 0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1", help="address of the port")
    parser.add_argument("--engine", choices=ENGINE_NAMES, default="auto", help="how models are run")
    parser.add_argument(
        "--max-body-bytes", type=int, default=Limits().body_bytes, help="largest request body, also after decompression"
    )
    return parser


def _max_rows(environment: Mapping[str, str]) -> int:
    """Rows of a shared run. Unset, batching is on: it waits for nobody, so it costs a lone client nothing."""
    enabled = environment.get(_BATCHING, "").lower()
    if enabled not in ("", "true", "false"):
        raise StartFailed(f"{_BATCHING}={environment[_BATCHING]!r} is neither true nor false")
    return 1 if enabled == "false" else _number(environment, _MAX_ROWS, default=DEFAULT_MAX_ROWS, minimum=1)


def _number(environment: Mapping[str, str], name: str, *, default: int, minimum: int) -> int:
    text = environment.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and minimum <= int(text) < 2**31):
        raise StartFailed(f"{name}={text!r} is not a whole number of at least {minimum}")
    return int(text)
