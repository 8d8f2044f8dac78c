"""Flags of ``tensorflow_model_server``: one table, from which the command's parser and the page of flags are made.

The flags are those of TensorFlow Serving 2.19 to 2.21. Each flag is honored, has no effect (the reason is logged if the
flag is given), or is refused (with the reason) unless its value asks for nothing.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tidemill_serving.errors import ServingError


class Effect(StrEnum):
    """What a flag does."""

    HONORED = "honored"
    WITHOUT_EFFECT = "without effect"
    REFUSED = "refused"
    OWN = "only here"


class FlagKind(StrEnum):
    """Kind of a flag's value."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    SWITCH = "switch"


class FlagError(ServingError):
    """Raised for a command line that cannot be followed; the exit status is 2."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag.

    Attributes:
        name: Name without ``--``, with underscores.
        kind: Kind of the value.
        default: Value of a flag that is not given; empty if the server chooses.
        effect: What the flag does.
        note: Meaning of an honored flag; else the reason, and for a refused one what to do instead.
        option: Option of ``python -m tidemill_serving`` that does this; empty for the one with the flag's name.
    """

    name: str
    kind: FlagKind
    default: str
    effect: Effect
    note: str
    option: str = ""


_TEXT, _INTEGER, _NUMBER, _SWITCH = FlagKind
_HONORED, _WITHOUT, _REFUSED, _OWN = Effect
_LABELS_AHEAD = "labels may name versions that are not loaded"

FLAGS = (
    Flag("port", _INTEGER, "8500", _HONORED, "port of gRPC; 0: none", "grpc-port"),
    Flag("grpc_socket_path", _TEXT, "", _HONORED, "unix socket of gRPC, for this user only"),
    Flag("rest_api_port", _INTEGER, "0", _HONORED, "port of REST; 0: none", "port"),
    Flag("rest_api_num_threads", _INTEGER, "", _WITHOUT, "one event loop answers REST"),
    Flag("rest_api_timeout_in_ms", _INTEGER, "30000", _HONORED, "longest time from a request of REST to its answer"),
    Flag("rest_api_enable_cors_support", _SWITCH, "false", _HONORED, "scripts of web pages from anywhere may ask"),
    Flag("enable_batching", _SWITCH, "false", _HONORED, "requests wait to fill a batch, by parameters"),
    Flag("batching_parameters_file", _TEXT, "", _HONORED, "BatchingParameters in text form; needs `--enable_batching`"),
    Flag(
        *("enable_per_model_batching_parameters", _SWITCH, "false", _HONORED),
        "versions are batched by the `batching_params.pbtxt` beside their SavedModel; needs `--enable_batching`",
    ),
    Flag("allow_version_labels_for_unavailable_models", _SWITCH, "false", _HONORED, _LABELS_AHEAD),
    Flag(
        *("force_allow_any_version_labels_for_unavailable_models", _SWITCH, "false", _HONORED),
        *(_LABELS_AHEAD, "allow-version-labels-for-unavailable-models"),
    ),
    Flag("model_config_file", _TEXT, "", _HONORED, "ModelServerConfig in text form: the models to serve"),
    Flag(
        *("model_config_file_poll_wait_seconds", _NUMBER, "0", _HONORED),
        "time between reads of that file; 0: it is read once",
    ),
    Flag("model_name", _TEXT, "default", _HONORED, "name of the only model, without `--model_config_file`"),
    Flag(
        *("model_base_path", _TEXT, "", _HONORED),
        "directory of the versions of the only model, without `--model_config_file`",
    ),
    Flag("num_load_threads", _INTEGER, "0", _WITHOUT, "versions are loaded one after the other, on a thread"),
    Flag("num_unload_threads", _INTEGER, "0", _WITHOUT, "each version is freed on a thread of its own"),
    Flag("max_num_load_retries", _INTEGER, "5", _HONORED, "how often a version that does not load is tried again"),
    Flag("load_retry_interval_micros", _INTEGER, "60000000", _HONORED, "time between these tries"),
    Flag(
        *("file_system_poll_wait_seconds", _NUMBER, "1", _HONORED),
        "time between looks at the directories of versions; 0: the server looks once",
    ),
    Flag("flush_filesystem_caches", _SWITCH, "true", _WITHOUT, "the server caches no files of models"),
    Flag(
        *("tensorflow_session_parallelism", _INTEGER, "0", _HONORED),
        "sets both of the next two; 0: TensorFlow chooses",
    ),
    Flag("tensorflow_intra_op_parallelism", _INTEGER, "0", _HONORED, "threads inside an operation"),
    Flag("tensorflow_inter_op_parallelism", _INTEGER, "0", _HONORED, "operations that run at the same time"),
    Flag(
        *("tensorflow_session_config_file", _TEXT, "", _HONORED),
        "ConfigProto in text form for TensorFlow's sessions; the flags of parallelism override it",
    ),
    Flag("use_alts_credentials", _SWITCH, "false", _REFUSED, "ALTS exists on Google's cloud only"),
    Flag("ssl_config_file", _TEXT, "", _HONORED, "SSLConfig in text form: TLS and mutual TLS of gRPC"),
    Flag("platform_config_file", _TEXT, "", _REFUSED, "there is one platform, tensorflow: use the other flags"),
    Flag(
        *("per_process_gpu_memory_fraction", _NUMBER, "0", _HONORED),
        "part of a GPU's memory that TensorFlow allocates when it starts, up to 1; 0: TensorFlow chooses",
    ),
    Flag("saved_model_tags", _TEXT, "serve", _HONORED, "tags of the MetaGraph to load, separated by commas"),
    Flag("grpc_channel_arguments", _TEXT, "", _HONORED, "limits of gRPC's connections, by gRPC's names"),
    Flag("grpc_max_threads", _INTEGER, "", _HONORED, "threads of gRPC; small calls of Predict need none"),
    Flag("enable_model_warmup", _SWITCH, "true", _HONORED, "replay `assets.extra/tf_serving_warmup_requests`"),
    Flag("num_request_iterations_for_warmup", _INTEGER, "1", _HONORED, "how often each of these requests is sent"),
    Flag("version", _SWITCH, "false", _HONORED, "print the versions and exit"),
    Flag("monitoring_config_file", _TEXT, "", _HONORED, "MonitoringConfig in text form: whether and where metrics are"),
    Flag(
        *("remove_unused_fields_from_bundle_metagraph", _SWITCH, "true", _WITHOUT),
        "the server keeps the signatures of a MetaGraph only",
    ),
    Flag(
        *("prefer_tflite_model", _SWITCH, "false", _HONORED),
        "serve `model.tflite` of versions that also have a SavedModel; without a SavedModel, it is always served",
    ),
    Flag("num_tflite_pools", _INTEGER, "", _HONORED, "times the next: interpreters of a model; one for each CPU"),
    Flag("num_tflite_interpreters_per_pool", _INTEGER, "1", _HONORED, "each interpreter runs one request at a time"),
    Flag(
        *("enable_signature_method_name_check", _SWITCH, "false", _HONORED),
        "classify and regress only with signatures of these method names; TensorFlow 2 names all predict",
    ),
    Flag(
        *("xla_cpu_compilation_enabled", _SWITCH, "false", _REFUSED),
        "TensorFlow reads the variable TF_XLA_FLAGS: set it to '--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit'",
    ),
    Flag("enable_profiler", _SWITCH, "true", _HONORED, "gRPC clients of this machine may record profiles"),
    Flag("thread_pool_factory_config_file", _TEXT, "", _REFUSED, "use the flags of parallelism"),
    Flag("mixed_precision", _TEXT, "", _REFUSED, "models run as they were exported: export one in that precision"),
    Flag("skip_initialize_tpu", _SWITCH, "false", _WITHOUT, "TPUs are not used"),
    Flag("enable_grpc_healthcheck_service", _SWITCH, "false", _WITHOUT, "grpc.health.v1.Health is always served"),
    Flag(
        *("enable_serialization_as_tensor_content", _SWITCH, "false", _HONORED),
        "answer Predict of gRPC with `tensor_content`",
    ),
    Flag("host", _TEXT, "0.0.0.0", _OWN, "address to listen on; `127.0.0.1`: for this machine only"),  # noqa: S104
    Flag("max_body_bytes", _INTEGER, "", _OWN, "largest request, also after decompression; 100 MB"),
)
"""All flags, in TensorFlow Serving's order."""

_BY_NAME = {flag.name: flag for flag in FLAGS}
_BOTH_PARALLEL = ("tensorflow_intra_op_parallelism", "tensorflow_inter_op_parallelism")


@dataclass(frozen=True, slots=True)
class FlagValues:
    """What a command line asks for.

    Attributes:
        given: Value by name of each given flag; of a flag that is given twice, the last one.
    """

    given: Mapping[str, str]

    def is_on(self, name: str) -> bool:
        """Return whether a switch is on, by the command line or by default."""
        return self.given.get(name, _BY_NAME[name].default) == "true"

    def without_effect(self) -> list[tuple[Flag, str]]:
        """Return the given flags that do nothing, with their values."""
        return [(_BY_NAME[name], value) for name, value in self.given.items() if _BY_NAME[name].effect is _WITHOUT]

    def arguments(self) -> list[str]:
        """Return the arguments of ``python -m tidemill_serving`` that do the same."""
        values = {flag.name: flag.default for flag in FLAGS if flag.effect in (_HONORED, _OWN)}
        values |= {name: value for name, value in self.given.items() if name in values}
        del values["version"]
        if values["model_config_file"]:  # which takes precedence: an image's start script always names the only model
            del values["model_name"], values["model_base_path"]
        both = values.pop("tensorflow_session_parallelism")
        if both != "0":
            values |= dict.fromkeys(_BOTH_PARALLEL, both)
        for port in ("port", "rest_api_port"):
            if values[port] == "0":
                del values[port]
        options: dict[str, str] = {}
        for name, value in values.items():
            option = _BY_NAME[name].option or name.replace("_", "-")
            if value and options.get(option) != "true":  # a switch is on if one of its flags is
                options[option] = value
        return ["--grpc-only", *(f"--{option}={value}" for option, value in options.items())]


def read_flags(arguments: Sequence[str]) -> FlagValues:
    """Read a command line: ``--name=value``, ``--name value``, ``--switch``; hyphens may replace underscores.

    Raises:
        FlagError: A flag is unknown or refused, a value is of the wrong kind, or flags contradict each other.
    """
    given: dict[str, str] = {}
    remaining = list(arguments)
    while remaining:
        argument = remaining.pop(0)
        name, separator, value = argument.partition("=")
        flag = _BY_NAME.get(name.removeprefix("--").replace("-", "_")) if name.startswith("--") else None
        if flag is None:
            raise _unknown(argument)
        if not separator and flag.kind is _SWITCH:
            value = "true"
        elif not separator:
            if not remaining:
                raise FlagError(f"--{flag.name} has no value: expected --{flag.name}={flag.default or '...'}")
            value = remaining.pop(0)
        given[flag.name] = _checked(flag, value)
    _check_together(given)
    return FlagValues(given)


def _unknown(argument: str) -> FlagError:
    name = argument.partition("=")[0].lstrip("-").replace("-", "_")
    nearest = difflib.get_close_matches(name, _BY_NAME, n=1, cutoff=0)
    return FlagError(f"unknown argument {argument!r}: the nearest flag is --{nearest[0]}; --help lists all flags")


def _checked(flag: Flag, value: str) -> str:
    """Return the value in the form of the options.

    Raises:
        FlagError: It is not of the flag's kind, or the flag is refused.
    """
    if flag.kind is _SWITCH:
        value = value.lower()
        if value not in ("true", "false"):
            raise FlagError(f"--{flag.name}={value}: expected true or false")
    elif flag.kind is not _TEXT:
        try:
            number = int(value) if flag.kind is _INTEGER else float(value)
        except ValueError:
            number = -1
        if not 0 <= number < 2**63:
            raise FlagError(f"--{flag.name}={value}: expected {flag.kind} of at least 0")
        value = f"{number:g}" if number == 0 else value  # so that each way to write 0 means none
    if flag.effect is _REFUSED and value != flag.default and not _is_zero(flag, value):
        raise FlagError(f"--{flag.name}={value} cannot be honored: {flag.note}")
    return value


def _is_zero(flag: Flag, value: str) -> bool:
    return flag.kind in (_INTEGER, _NUMBER) and float(value) == 0


def _check_together(given: Mapping[str, str]) -> None:
    if given.get("version") == "true":
        return
    if not given.get("model_base_path") and not given.get("model_config_file"):
        raise FlagError("nothing to serve: give --model_base_path or --model_config_file")
    both = given.get("tensorflow_session_parallelism", "0")
    if both != "0" and any(given.get(name, "0") != "0" for name in _BOTH_PARALLEL):
        raise FlagError(
            f"--tensorflow_session_parallelism={both} sets both {' and '.join(f'--{name}' for name in _BOTH_PARALLEL)}:"
            " give either it or those"
        )
    ports = [given.get(name, _BY_NAME[name].default) for name in ("port", "rest_api_port")]
    if ports[0] == ports[1] != "0":
        raise FlagError(f"--port and --rest_api_port are both {ports[0]}: gRPC and REST need a port each")
    if ports == ["0", "0"] and not given.get("grpc_socket_path"):
        raise FlagError("nowhere to listen: give --port or --grpc_socket_path for gRPC, or --rest_api_port for REST")


def usage() -> str:
    """Return the text of ``--help``."""
    lines = ["usage: tensorflow_model_server --model_base_path=DIRECTORY --rest_api_port=8501 [--FLAG=VALUE ...]", ""]
    for effect in Effect:
        lines.append(f"flags {effect}:")
        for flag in FLAGS:
            if flag.effect is effect:
                default = f" (default: {flag.default})" if flag.default else ""
                lines.append(f"  --{flag.name}  {flag.note}{default}")
    return "\n".join(lines)
