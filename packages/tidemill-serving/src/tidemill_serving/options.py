"""Options of the server, read from its command line and from SageMaker's environment variables."""

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidemill_serving._shared.http.limits import Limits
from tidemill_serving.arguments import ENGINE_VARIABLE, command_line
from tidemill_serving.batch_queue import BatchingParameters
from tidemill_serving.batching import DEFAULT_MAX_ROWS
from tidemill_serving.channel_arguments import ChannelArguments, read_channel_arguments
from tidemill_serving.engine import Formats, Parallelism
from tidemill_serving.errors import StartFailed
from tidemill_serving.handlers.pool import PoolSize
from tidemill_serving.handlers.wire import PYTHON, TENSORFLOW_SERVING
from tidemill_serving.processors import num_processors
from tidemill_serving.session_config import SessionConfig, read_session_config

_DEFAULT_PORT = 8080
_TRANSFORM_ENQUEUED = 100_000_000
_BATCHING = "SAGEMAKER_TFS_ENABLE_BATCHING"
_MAX_ROWS = "SAGEMAKER_TFS_MAX_BATCH_SIZE"
_SAFE_PORTS = "SAGEMAKER_SAFE_PORT_RANGE"
_OP_LIBRARIES = "TIDEMILL_SERVING_OP_LIBRARIES"
_MOST_WORKERS = 4  # default limit: each worker may import TensorFlow
_HANDLER_TIMEOUT_S = 60
_LOAD_TIMEOUT_S = 300
_MODEL_TIMEOUT_S, _ACCELERATED_TIMEOUT_S = 10, 30
_WAIT_TIME = "SAGEMAKER_TFS_WAIT_TIME_SECONDS"
_GRPC_PORT = "TIDEMILL_GRPC_PORT"
_NO_BUCKET = (
    "the server reads no code from S3: put the script into code/ of each model, or into code/ beside the models"
)
_REFUSED = {
    "SAGEMAKER_MULTI_MODEL_UNIVERSAL_BUCKET": _NO_BUCKET,
    "SAGEMAKER_MULTI_MODEL_UNIVERSAL_PREFIX": _NO_BUCKET,
}
_NO_NGINX, _NO_GUNICORN = "the server has no nginx", "the server has no gunicorn"
_WITHOUT_EFFECT = {
    "SAGEMAKER_GUNICORN_LOGLEVEL": _NO_GUNICORN,
    "SAGEMAKER_GUNICORN_WORKER_CLASS": _NO_GUNICORN,
    "SAGEMAKER_NGINX_PROXY_READ_TIMEOUT_SECONDS": _NO_NGINX,
    "SAGEMAKER_TFS_FRACTIONAL_GPU_MEM_MARGIN": "one process serves the models, so no GPU is divided",
    "SAGEMAKER_TFS_INSTANCE_COUNT": "one process serves the models",
    "SAGEMAKER_TFS_NGINX_LOGLEVEL": _NO_NGINX,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedModels:
    """Models whose versions are added and removed while the server runs.

    Attributes:
        config_file: Model configuration file; None for one model.
        base_path: Directory of the versions of the only model, or a URI with the scheme ``file`` or ``s3``.
        config_poll_s: Seconds between reads of the file; 0 reads it once.
        poll_s: Seconds between scans of the version directories; 0 scans them once.
        retries: Number of retries for a version that fails to load.
        retry_s: Seconds between retries.
        labels_ahead: Allow labels for versions that are not loaded.
        waits: Wait at the start for a first version of each model instead of failing, while there is none.
    """

    config_file: Path | None = None
    config_poll_s: float = 0.0
    name: str = "default"
    base_path: str | None = None
    poll_s: float = 1.0
    retries: int = 5
    retry_s: float = 60.0
    labels_ahead: bool = False
    waits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Options of one server.

    Attributes:
        model_dir: Directory of the unpacked model archive.
        unix_socket: Path of the unix socket to listen on.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one; None listens on the unix socket or for gRPC only.
        grpc_port: Port for gRPC clients; 0 takes a free one; None serves gRPC to the archive's code only.
        grpc_socket: Unix socket for gRPC clients.
        grpc_tls: File with an SSLConfig of TF Serving; None serves gRPC without TLS.
        grpc_channel: Limits of gRPC's connections.
        grpc_threads: Number of threads for gRPC calls that are not small predict calls.
        profiler: Let gRPC clients of this machine record profiles, as files where they say.
        tensor_content: Answer gRPC Predict calls with ``tensor_content`` instead of typed values.
        engine: One of `ENGINE_NAMES`; `open_engine` refuses others.
        op_libraries: Shared libraries of custom ops, loaded before the models.
        formats: Which model of a version's directory is loaded.
        parallelism: Number of TensorFlow threads.
        session_config: A ConfigProto for TensorFlow's sessions, but for the numbers of threads.
        max_rows: Maximum rows of a shared run; 1 disables batching.
        batching: TF Serving's batching parameters; None batches only requests that arrive together.
        batching_file: File of batching parameters; takes precedence over ``batching``.
        model_batching: Whether each version is batched by its own file of parameters, if it has one, and by no other.
        warm_ups: How often each recorded warm-up request is sent; 0 disables the warm-up.
        drain_grace_s: Seconds from SIGTERM until new connections are refused.
        drain_timeout_s: Maximum seconds for requests in progress at SIGTERM.
        handlers: Number of processes and time limit of user code.
        safe_ports: First and last port that loopback servers may use; None lets the system choose.
        kind: One of `KINDS`.
        code_dir: Directory of the submitted code of a ``python`` endpoint.
        multi_model: Load models on request, from directories below ``model_dir``.
        managed: Models to serve instead of the archive's; None serves the archive's.
        cors: Allow cross-origin requests from any web page to TF Serving's routes.
        monitoring_config: TF Serving's monitoring configuration file, which enables metrics and sets their path; None
            serves metrics at the default path.
        load_timeout_s: Maximum seconds for loading a model on request.
        start_timeout_s: Maximum seconds for loading the models at the start; None sets no limit.
        model_timeout_s: Maximum seconds that the model of a ``python`` endpoint takes for a call.
        without_effect: Variables of SageMaker's container that are set but have no effect, with the reasons.
        archives: Directory of the archives that load requests may name; None refuses all archives.
    """

    model_dir: Path
    unix_socket: Path | None = None
    host: str = "127.0.0.1"
    port: int | None = None
    grpc_port: int | None = None
    grpc_socket: Path | None = None
    grpc_tls: Path | None = None
    grpc_channel: ChannelArguments = field(default_factory=ChannelArguments)
    grpc_threads: int = 8
    profiler: bool = False
    tensor_content: bool = False
    engine: str = "auto"
    op_libraries: tuple[Path, ...] = ()
    formats: Formats = field(default_factory=Formats)
    parallelism: Parallelism = field(default_factory=Parallelism)
    session_config: bytes = b""
    max_rows: int = DEFAULT_MAX_ROWS
    batching: BatchingParameters | None = None
    batching_file: Path | None = None
    model_batching: bool = False
    limits: Limits = field(default_factory=Limits)
    warm_ups: int = 1
    drain_grace_s: float = 1.0
    drain_timeout_s: float = 30.0
    handlers: PoolSize = field(default_factory=PoolSize)
    safe_ports: tuple[int, int] | None = None
    kind: str = TENSORFLOW_SERVING
    code_dir: Path = Path("/opt/ml/code")
    multi_model: bool = False
    managed: ManagedModels | None = None
    cors: bool = False
    monitoring_config: Path | None = None
    load_timeout_s: float = 300.0
    start_timeout_s: float | None = None
    model_timeout_s: float = _MODEL_TIMEOUT_S
    without_effect: Mapping[str, str] = field(default_factory=dict)
    archives: Path | None = None

    @property
    def listens_for_grpc(self) -> bool:
        """Whether gRPC is served to clients, not only to the archive's code."""
        return self.grpc_port is not None or self.grpc_socket is not None


def read_options(arguments: Sequence[str], environment: Mapping[str, str]) -> ServerOptions:
    """Read the command line and the environment.

    Raises:
        StartFailed: A variable has a value that is not allowed.
    """
    given = command_line().parse_args(arguments)
    for name, reason in _REFUSED.items():
        if environment.get(name):
            raise StartFailed(f"{name}={environment[name]!r}: {reason}")
    port: int | None = given.port
    if port is None and given.unix_socket is None and not given.grpc_only:
        port = _number(environment, "SAGEMAKER_BIND_TO_PORT", default=_DEFAULT_PORT, minimum=0)
    multi_model = _switch(environment, "SAGEMAKER_MULTI_MODEL")
    if multi_model and given.kind == PYTHON:
        raise StartFailed("SAGEMAKER_MULTI_MODEL=true: endpoints of the kind python have one model")
    config = read_session_config(
        given.tensorflow_session_config_file, gpu_memory_fraction=given.per_process_gpu_memory_fraction
    )
    model_dir: Path = given.model_dir or Path("/opt/ml/models" if multi_model else "/opt/ml/model")
    return ServerOptions(
        model_dir=model_dir.absolute(),
        unix_socket=given.unix_socket and given.unix_socket.absolute(),
        host=given.host,
        port=port,
        grpc_port=_grpc_port(given.grpc_port, environment),
        grpc_socket=given.grpc_socket_path and given.grpc_socket_path.absolute(),
        grpc_tls=_tls_file(given),
        grpc_channel=read_channel_arguments(given.grpc_channel_arguments),
        grpc_threads=given.grpc_max_threads,
        profiler=given.enable_profiler,
        tensor_content=given.enable_serialization_as_tensor_content,
        engine=given.engine or environment.get(ENGINE_VARIABLE) or "auto",
        op_libraries=tuple(model_dir.absolute() / path for path in _paths(environment, _OP_LIBRARIES)),
        formats=Formats(
            tags=given.saved_model_tags,
            prefer_tflite=given.prefer_tflite_model,
            tflite_interpreters=given.num_tflite_pools * given.num_tflite_interpreters_per_pool,
            checks_method_names=given.enable_signature_method_name_check,
        ),
        parallelism=_parallelism(given, environment, config),
        session_config=config.serialized,
        max_rows=_max_rows(environment),
        batching=BatchingParameters() if given.enable_batching else _batching(environment),
        batching_file=_batching_file(given),
        model_batching=given.enable_per_model_batching_parameters,
        warm_ups=given.num_request_iterations_for_warmup if given.enable_model_warmup else 0,
        limits=_limits(given),
        handlers=_pool_size(environment, multi_model=multi_model, kind=given.kind),
        safe_ports=_safe_ports(environment),
        kind=given.kind,
        code_dir=given.code_dir.absolute(),
        multi_model=multi_model,
        managed=_managed(given, multi_model=multi_model),
        archives=given.archives,
        cors=given.rest_api_enable_cors_support,
        monitoring_config=given.monitoring_config_file,
        load_timeout_s=_number(environment, _WAIT_TIME, default=_LOAD_TIMEOUT_S, minimum=1),
        start_timeout_s=_number(environment, _WAIT_TIME, default=0, minimum=1) or None,
        model_timeout_s=_model_timeout_s(environment),
        without_effect={name: reason for name, reason in _WITHOUT_EFFECT.items() if environment.get(name)},
    )


def _managed(given: argparse.Namespace, *, multi_model: bool) -> ManagedModels | None:
    if given.model_config_file is None and given.model_base_path is None:
        return None
    if given.model_config_file is not None and given.model_base_path is not None:
        raise StartFailed("--model-config-file and --model-base-path: give one of them")
    if multi_model or given.kind == PYTHON:
        raise StartFailed("--model-config-file and --model-base-path: not for multi-model and python endpoints")
    return ManagedModels(
        config_file=given.model_config_file,
        config_poll_s=given.model_config_file_poll_wait_seconds,
        name=given.model_name,
        base_path=given.model_base_path and _absolute(given.model_base_path),
        poll_s=given.file_system_poll_wait_seconds,
        retries=given.max_num_load_retries,
        retry_s=given.load_retry_interval_micros / 1e6,
        labels_ahead=given.allow_version_labels_for_unavailable_models,
        waits=given.wait_for_versions,
    )


def _absolute(base_path: str) -> str:
    return base_path if "://" in base_path else str(Path(base_path).absolute())


def _tls_file(given: argparse.Namespace) -> Path | None:
    file: Path | None = given.ssl_config_file
    if file is not None and given.model_config_file is None and given.model_base_path is None:
        raise StartFailed(
            "--ssl-config-file: only with --model-base-path or --model-config-file; the code of an archive reaches the"
            " models without TLS"
        )
    return file


def _limits(given: argparse.Namespace) -> Limits:
    if given.rest_api_timeout_in_ms is None:
        return Limits(body_bytes=given.max_body_bytes)
    if given.rest_api_timeout_in_ms < 1:
        raise StartFailed(f"--rest-api-timeout-in-ms {given.rest_api_timeout_in_ms}: expected at least 1")
    return Limits(body_bytes=given.max_body_bytes, answer_timeout_s=given.rest_api_timeout_in_ms / 1000)


def _parallelism(given: argparse.Namespace, environment: Mapping[str, str], config: SessionConfig) -> Parallelism:
    """Return the thread counts: those of the command line, else of the session's configuration or the environment."""
    counts: dict[str, int] = {}
    for kind in ("inter_op", "intra_op"):
        count = getattr(given, f"tensorflow_{kind}_parallelism")
        if count is None:
            count = _number(environment, f"SAGEMAKER_TFS_{kind.upper()}_PARALLELISM", default=0, minimum=0)
        elif count < 0:
            option = f"--tensorflow-{kind.replace('_', '-')}-parallelism"
            raise StartFailed(f"{option} {count}: expected at least 0")
        counts[kind] = count or getattr(config, kind)
    return Parallelism(**counts)


def _batching_file(given: argparse.Namespace) -> Path | None:
    if given.batching_parameters_file is not None and not given.enable_batching:
        raise StartFailed("--batching-parameters-file needs --enable-batching")
    file: Path | None = given.batching_parameters_file
    return file


def _grpc_port(given: int | None, environment: Mapping[str, str]) -> int | None:
    if given is None and not environment.get(_GRPC_PORT):
        return None
    return _number(environment, _GRPC_PORT, default=0, minimum=0) if given is None else given


def _pool_size(environment: Mapping[str, str], *, multi_model: bool, kind: str) -> PoolSize:
    processes = 1 if multi_model else min(num_processors(), _MOST_WORKERS)  # each model has its own
    if kind == PYTHON:
        return PoolSize(
            workers=_number(environment, "SAGEMAKER_MODEL_SERVER_WORKERS", default=processes, minimum=1),
            timeout_s=_number(environment, "SAGEMAKER_MODEL_SERVER_TIMEOUT", default=_HANDLER_TIMEOUT_S, minimum=1),
        )
    return PoolSize(
        workers=_number(environment, "SAGEMAKER_GUNICORN_WORKERS", default=processes, minimum=1),
        threads=_number(environment, "SAGEMAKER_GUNICORN_THREADS", default=1, minimum=1),
        timeout_s=_number(environment, "SAGEMAKER_GUNICORN_TIMEOUT_SECONDS", default=_HANDLER_TIMEOUT_S, minimum=1),
    )


def _model_timeout_s(environment: Mapping[str, str]) -> float:
    name = "SAGEMAKER_TFS_GRPC_REQUEST_TIMEOUT"
    text = environment.get(name, "")
    if not text:
        accelerated = _switch(environment, "SAGEMAKER_INFERENCE_ACCELERATOR_PRESENT")
        return _ACCELERATED_TIMEOUT_S if accelerated else _MODEL_TIMEOUT_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if 0 < seconds < math.inf:
        return seconds
    raise StartFailed(f"{name}={text!r} is not a number of seconds above 0")


def _paths(environment: Mapping[str, str], name: str) -> list[Path]:
    return [Path(path) for path in environment.get(name, "").split(os.pathsep) if path]


def _safe_ports(environment: Mapping[str, str]) -> tuple[int, int] | None:
    text = environment.get(_SAFE_PORTS, "")
    if not text:
        return None
    first, _, last = text.partition("-")
    if text.isascii() and first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) < 2**16:
        return int(first), int(last)
    raise StartFailed(f"{_SAFE_PORTS}={text!r} is not a range of ports; expected FIRST-LAST, e.g. 9000-9010")


def _batching(environment: Mapping[str, str]) -> BatchingParameters | None:
    """Return the container's batching parameters, or None if batching is off."""
    if not _switch(environment, _BATCHING):
        return None
    cpus = num_processors()
    enqueued = _TRANSFORM_ENQUEUED if environment.get("SAGEMAKER_BATCH") else cpus
    micros = _number(environment, "SAGEMAKER_TFS_BATCH_TIMEOUT_MICROS", default=1000, minimum=0)
    return BatchingParameters(
        max_batch_size=_number(environment, _MAX_ROWS, default=8, minimum=1),
        timeout_s=micros / 1e6,
        max_enqueued_batches=_number(environment, "SAGEMAKER_TFS_MAX_ENQUEUED_BATCHES", default=enqueued, minimum=1),
        threads=_number(environment, "SAGEMAKER_TFS_NUM_BATCH_THREADS", default=cpus, minimum=1),
    )


def _max_rows(environment: Mapping[str, str]) -> int:
    """Return the maximum rows of a shared run. Batching is on by default: it never waits, so it adds no latency."""
    if not _switch(environment, _BATCHING, default=True):
        return 1
    return _number(environment, _MAX_ROWS, default=DEFAULT_MAX_ROWS, minimum=1)


def _switch(environment: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    text = environment.get(name, "").lower()
    if text not in ("", "true", "false"):
        raise StartFailed(f"{name}={environment[name]!r} is neither true nor false")
    return text == "true" if text else default


def _number(environment: Mapping[str, str], name: str, *, default: int, minimum: int) -> int:
    text = environment.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and minimum <= int(text) < 2**31):
        raise StartFailed(f"{name}={text!r} is not a whole number of at least {minimum}")
    return int(text)
