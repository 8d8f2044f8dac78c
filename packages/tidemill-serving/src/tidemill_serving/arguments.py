"""The command line of the server. TF Serving's options also accept its spelling: underscores and ``=true``."""

import argparse
from pathlib import Path
from typing import Any

from tidemill_serving._shared.http.limits import Limits
from tidemill_serving.engine import ENGINE_NAMES, Formats
from tidemill_serving.handlers.wire import KINDS, TENSORFLOW_SERVING
from tidemill_serving.processors import num_processors

ENGINE_VARIABLE = "TIDEMILL_SERVING_ENGINE"
"""Environment variable with the name of the engine; used if the command line does not name one."""

_GRPC_THREADS_PER_CPU = 4


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tidemill_serving", description="Serve models of TensorFlow.")
    archive = "directory of the model archive (default: /opt/ml/model), or of all models (default: /opt/ml/models)"
    parser.add_argument("--model-dir", type=Path, help=archive)
    parser.add_argument("--kind", choices=KINDS, default=TENSORFLOW_SERVING, help="kind of endpoint")
    code = "directory of the submitted code of a python endpoint"
    parser.add_argument("--code-dir", type=Path, default=Path("/opt/ml/code"), help=code)
    parser.add_argument("--unix-socket", type=Path, help="listen on this unix socket")
    parser.add_argument("--port", type=int, help="listen on this port; 0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1", help="address of the port")
    _add_models(parser)
    _add_formats(parser)
    _add_switch(parser, "--enable-batching", help="let requests wait for each other, by parameters")
    batching = "file of batching parameters: BatchingParameters in text form (default: TF Serving's defaults)"
    _add(parser, "--batching-parameters-file", type=Path, help=batching)
    own = "batch the versions that hold a batching_params.pbtxt by its parameters, and no others by parameters"
    _add_switch(parser, "--enable-per-model-batching-parameters", help=own)
    timeout = "longest time from a request of REST to its answer, in milliseconds (default: 60,000)"
    _add(parser, "--rest-api-timeout-in-ms", type=int, help=timeout)
    cors = "let scripts of web pages from anywhere ask TF Serving's routes"
    _add_switch(parser, "--rest-api-enable-cors-support", help=cors)
    monitoring = "file that says where metrics are offered, if at all: a MonitoringConfig in text form"
    _add(parser, "--monitoring-config-file", type=Path, help=monitoring)
    grpc = "listen for gRPC on this port; 0 takes a free one (default: none, or the variable TIDEMILL_GRPC_PORT)"
    _add(parser, "--grpc-port", type=int, help=grpc)
    _add(parser, "--grpc-socket-path", type=Path, help="listen for gRPC on this unix socket")
    tls = "file with the certificate of gRPC and, for mutual TLS, the authorities of clients: an SSLConfig in text form"
    _add(parser, "--ssl-config-file", type=Path, help=tls)
    channel = "settings of gRPC's connections: name=value,name=value, by gRPC's names"
    _add(parser, "--grpc-channel-arguments", default="", help=channel)
    _add_switch(parser, "--grpc-only", help="do not listen for REST, unless --port or --unix-socket is given")
    threads = "threads for calls of gRPC; small predict calls need none"
    _add(parser, "--grpc-max-threads", type=int, default=_GRPC_THREADS_PER_CPU * num_processors(), help=threads)
    _add_switch(
        parser, "--enable-model-warmup", default=True, help="replay the warm-up requests of a version (default)"
    )
    times = "how often each warm-up request is sent (default: 1)"
    _add(parser, "--num-request-iterations-for-warmup", type=int, default=1, help=times)
    profiler = "let gRPC clients of this machine record profiles, as files where they say"
    _add_switch(parser, "--enable-profiler", help=profiler)
    content = "answer Predict of gRPC with tensor_content instead of typed values"
    _add_switch(parser, "--enable-serialization-as-tensor-content", help=content)
    inter = "operations of a model that run at the same time; 0: TensorFlow chooses (default: the container's variable)"
    _add(parser, "--tensorflow-inter-op-parallelism", type=int, help=inter)
    intra = "threads inside an operation; 0: TensorFlow chooses (default: the container's variable)"
    _add(parser, "--tensorflow-intra-op-parallelism", type=int, help=intra)
    config = "file with the configuration of sessions: a ConfigProto in text form; other options override its numbers"
    _add(parser, "--tensorflow-session-config-file", type=Path, help=config)
    memory = "part of a GPU's memory that TensorFlow allocates when it starts, up to 1; 0: TensorFlow chooses (default)"
    _add(parser, "--per-process-gpu-memory-fraction", type=float, default=0.0, help=memory)
    engine = f"how models are run (default: the environment variable {ENGINE_VARIABLE}, else auto)"
    parser.add_argument("--engine", choices=ENGINE_NAMES, help=engine)
    parser.add_argument(
        "--max-body-bytes", type=int, default=Limits().body_bytes, help="largest request body, also after decompression"
    )
    parser.add_argument(
        "--archives", type=Path, help="directory of the model archives that load requests may name (multi-model only)"
    )
    return parser


def _add_models(parser: argparse.ArgumentParser) -> None:
    """Add TF Serving's options for models outside a model archive."""
    group = parser.add_argument_group("models with versions that come and go, in place of an archive")
    config = "file that lists the models: a ModelServerConfig in text form"
    _add(group, "--model-config-file", type=Path, help=config)
    poll = "seconds between looks at that file; 0 looks once"
    _add(group, "--model-config-file-poll-wait-seconds", type=float, default=0.0, help=poll)
    base = "directory of the versions of the only model, or s3://BUCKET/PREFIX"
    _add(group, "--model-base-path", help=base)
    _add(group, "--model-name", default="default", help="name of the only model (default: default)")
    poll = "seconds between looks at the directories of versions; 0 looks once (default: 1)"
    _add(group, "--file-system-poll-wait-seconds", type=float, default=1.0, help=poll)
    retries = "how often a version that does not load is tried again (default: 5)"
    _add(group, "--max-num-load-retries", type=int, default=5, help=retries)
    interval = "microseconds between the tries (default: a minute)"
    _add(group, "--load-retry-interval-micros", type=int, default=60_000_000, help=interval)
    waits = "wait for the first version of each model instead of failing, while there is none"
    _add_switch(group, "--wait-for-versions", help=waits)
    ahead = "allow labels of versions that are not loaded"
    _add_switch(group, "--allow-version-labels-for-unavailable-models", help=ahead)


def _add_formats(parser: argparse.ArgumentParser) -> None:
    """Add TF Serving's options for the formats of models."""
    tags = "tags of the graph of SavedModels, separated by commas (default: serve)"
    _add(parser, "--saved-model-tags", type=_tags, default=Formats().tags, help=tags)
    methods = "classify and regress with signatures of these method names only; predict with those of TF Serving"
    _add_switch(parser, "--enable-signature-method-name-check", help=methods)
    prefer = "serve model.tflite of versions that also have a SavedModel"
    _add_switch(parser, "--prefer-tflite-model", help=prefer)
    pools = "pools of interpreters of a TensorFlow Lite model (default: one for each CPU)"
    _add(parser, "--num-tflite-pools", type=_positive, default=num_processors(), help=pools)
    interpreters = "interpreters in a pool; each runs one request at a time (default: 1)"
    _add(parser, "--num-tflite-interpreters-per-pool", type=_positive, default=1, help=interpreters)


def _add(parser: argparse._ActionsContainer, name: str, **options: Any) -> None:
    """Add an option that also accepts TF Serving's spelling with underscores."""
    parser.add_argument(name, "--" + name.removeprefix("--").replace("-", "_"), **options)


def _add_switch(parser: argparse._ActionsContainer, name: str, **options: Any) -> None:
    """Add a switch, which also accepts ``--name=true``."""
    _add(parser, name, type=_boolean, nargs="?", const=True, **{"default": False, **options})


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _tags(text: str) -> tuple[str, ...]:
    tags = tuple(tag for tag in text.split(",") if tag)
    if not tags:
        raise argparse.ArgumentTypeError(f"{text!r} names no tag")
    return tags
