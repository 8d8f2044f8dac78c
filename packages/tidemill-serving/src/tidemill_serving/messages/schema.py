"""The fields of TF Serving's messages: names, numbers and types, as published with tensorflow-serving-api.

Messages and enumerations that are published as nested types are listed here at the top level under a separate name:
neither the wire format nor the text format contains the declaring message.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

PACKAGE = "tensorflow.serving"
REPEATED, MAP = "repeated", "map"
Field = tuple[str, int, str, str]
"""Name, number, type, label: empty, `REPEATED`, `MAP`, or the name of a oneof."""


class Method(NamedTuple):
    """Method of a service.

    Attributes:
        asks: Name of the request's message.
        answers: Name of the answer's message.
        asks_often: Whether the request is a stream.
        answers_often: Whether the answer is a stream.
    """

    name: str
    asks: str
    answers: str
    asks_often: bool = False
    answers_often: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """Content of one file of definitions.

    Attributes:
        name: Name of the file.
        package: Package of everything in it.
        messages: Fields of the messages.
        enums: Numbers of the enumerations.
        services: Methods of the services.
        imports: Files that it imports.
    """

    name: str
    package: str
    messages: Mapping[str, tuple[Field, ...]]
    enums: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    services: Mapping[str, tuple[Method, ...]] = field(default_factory=dict)
    imports: tuple[str, ...] = ()


_TENSOR = "tensorflow.TensorProto"
_EXAMPLE = "tensorflow.Example"
_SPEC = f"{PACKAGE}.ModelSpec"
_INTEGER = "google.protobuf.Int64Value"
_POLICY = "ServableVersionPolicy"

_IMPORTS = (
    "google/protobuf/any.proto",
    "google/protobuf/wrappers.proto",
    "tensorflow/core/example/example.proto",
    "tensorflow/core/framework/tensor.proto",
    "tensorflow/core/protobuf/meta_graph.proto",
)
PUBLISHED_MODULES = ("predict", "classification", "regression", "inference", "get_model_metadata", "input", "model")
"""Modules of ``tensorflow_serving.apis`` with the messages that user code exchanges."""

_PREDICTION: dict[str, tuple[Field, ...]] = {
    "ModelSpec": (
        ("name", 1, "string", ""),
        ("version", 2, _INTEGER, "version_choice"),
        ("version_label", 4, "string", "version_choice"),
        ("signature_name", 3, "string", ""),
    ),
    "PredictRequest": (
        ("model_spec", 1, _SPEC, ""),
        ("inputs", 2, _TENSOR, MAP),
        ("output_filter", 3, "string", REPEATED),
    ),
    "PredictResponse": (("model_spec", 2, _SPEC, ""), ("outputs", 1, _TENSOR, MAP)),
    "ExampleList": (("examples", 1, _EXAMPLE, REPEATED),),
    "ExampleListWithContext": (("examples", 1, _EXAMPLE, REPEATED), ("context", 2, _EXAMPLE, "")),
    "Input": (
        ("example_list", 1, f"{PACKAGE}.ExampleList", "kind"),
        ("example_list_with_context", 2, f"{PACKAGE}.ExampleListWithContext", "kind"),
    ),
    "Class": (("label", 1, "string", ""), ("score", 2, "float", "")),
    "Classifications": (("classes", 1, f"{PACKAGE}.Class", REPEATED),),
    "ClassificationResult": (("classifications", 1, f"{PACKAGE}.Classifications", REPEATED),),
    "ClassificationRequest": (("model_spec", 1, _SPEC, ""), ("input", 2, f"{PACKAGE}.Input", "")),
    "ClassificationResponse": (("result", 1, f"{PACKAGE}.ClassificationResult", ""), ("model_spec", 2, _SPEC, "")),
    "Regression": (("value", 1, "float", ""),),
    "RegressionResult": (("regressions", 1, f"{PACKAGE}.Regression", REPEATED),),
    "RegressionRequest": (("model_spec", 1, _SPEC, ""), ("input", 2, f"{PACKAGE}.Input", "")),
    "RegressionResponse": (("result", 1, f"{PACKAGE}.RegressionResult", ""), ("model_spec", 2, _SPEC, "")),
    "InferenceTask": (("model_spec", 1, _SPEC, ""), ("method_name", 2, "string", "")),
    "InferenceResult": (
        ("model_spec", 1, _SPEC, ""),
        ("classification_result", 2, f"{PACKAGE}.ClassificationResult", "result"),
        ("regression_result", 3, f"{PACKAGE}.RegressionResult", "result"),
    ),
    "MultiInferenceRequest": (("tasks", 1, f"{PACKAGE}.InferenceTask", REPEATED), ("input", 2, f"{PACKAGE}.Input", "")),
    "MultiInferenceResponse": (("results", 1, f"{PACKAGE}.InferenceResult", REPEATED),),
    "SignatureDefMap": (("signature_def", 1, "tensorflow.SignatureDef", MAP),),
    "GetModelMetadataRequest": (("model_spec", 1, _SPEC, ""), ("metadata_field", 2, "string", REPEATED)),
    "GetModelMetadataResponse": (("model_spec", 1, _SPEC, ""), ("metadata", 2, "google.protobuf.Any", MAP)),
}

_MANAGEMENT: dict[str, tuple[Field, ...]] = {
    "StatusProto": (("error_code", 1, "int32", ""), ("error_message", 2, "string", "")),
    "GetModelStatusRequest": (("model_spec", 1, _SPEC, ""),),
    "ModelVersionStatus": (
        ("version", 1, "int64", ""),
        ("state", 2, f"enum {PACKAGE}.VersionState", ""),
        ("status", 3, f"{PACKAGE}.StatusProto", ""),
    ),
    "GetModelStatusResponse": (("model_version_status", 1, f"{PACKAGE}.ModelVersionStatus", REPEATED),),
    "LatestVersions": (("num_versions", 1, "uint32", ""),),
    "AllVersions": (),
    "SpecificVersions": (("versions", 1, "int64", REPEATED),),
    _POLICY: (
        ("latest", 100, f"{PACKAGE}.LatestVersions", "policy_choice"),
        ("all", 101, f"{PACKAGE}.AllVersions", "policy_choice"),
        ("specific", 102, f"{PACKAGE}.SpecificVersions", "policy_choice"),
    ),
    "SamplingConfig": (("sampling_rate", 1, "double", ""),),
    "LogCollectorConfig": (("type", 1, "string", ""), ("filename_prefix", 2, "string", "")),
    "LoggingConfig": (
        ("log_collector_config", 1, f"{PACKAGE}.LogCollectorConfig", ""),
        ("sampling_config", 2, f"{PACKAGE}.SamplingConfig", ""),
    ),
    "ModelConfig": (
        ("name", 1, "string", ""),
        ("base_path", 2, "string", ""),
        ("model_type", 3, f"enum {PACKAGE}.ModelType", ""),
        ("model_platform", 4, "string", ""),
        ("model_version_policy", 7, f"{PACKAGE}.{_POLICY}", ""),
        ("version_labels", 8, "int64", MAP),
        ("logging_config", 6, f"{PACKAGE}.LoggingConfig", ""),
        ("logging_configs", 9, f"{PACKAGE}.LoggingConfig", REPEATED),
    ),
    "ModelConfigList": (("config", 1, f"{PACKAGE}.ModelConfig", REPEATED),),
    "ModelServerConfig": (
        ("model_config_list", 1, f"{PACKAGE}.ModelConfigList", "config"),
        ("custom_model_config", 2, "google.protobuf.Any", "config"),
    ),
    "ReloadConfigRequest": (("config", 1, f"{PACKAGE}.ModelServerConfig", ""), ("metric_names", 2, "string", REPEATED)),
    "Metric": (("name", 1, "string", ""), ("int64_value_increase", 2, "int64", "value_increase")),
    "ReloadConfigResponse": (
        ("status", 1, f"{PACKAGE}.StatusProto", ""),
        ("metric", 2, f"{PACKAGE}.Metric", REPEATED),
    ),
}


def _logged(request: str, response: str) -> tuple[Field, ...]:
    return (("request", 1, f"{PACKAGE}.{request}", ""), ("response", 2, f"{PACKAGE}.{response}", ""))


_FILES: dict[str, tuple[Field, ...]] = {
    "PredictLog": _logged("PredictRequest", "PredictResponse"),
    "ClassifyLog": _logged("ClassificationRequest", "ClassificationResponse"),
    "RegressLog": _logged("RegressionRequest", "RegressionResponse"),
    "MultiInferenceLog": _logged("MultiInferenceRequest", "MultiInferenceResponse"),
    "OtherLog": (),
    "LogMetadata": (
        ("model_spec", 1, _SPEC, ""),
        ("sampling_config", 2, f"{PACKAGE}.SamplingConfig", ""),
        ("saved_model_tags", 3, "string", REPEATED),
    ),
    "PredictionLog": (
        ("log_metadata", 1, f"{PACKAGE}.LogMetadata", ""),
        ("classify_log", 2, f"{PACKAGE}.ClassifyLog", "log_type"),
        ("regress_log", 3, f"{PACKAGE}.RegressLog", "log_type"),
        ("multi_inference_log", 4, f"{PACKAGE}.MultiInferenceLog", "log_type"),
        ("session_run_log", 5, f"{PACKAGE}.OtherLog", "log_type"),
        ("predict_log", 6, f"{PACKAGE}.PredictLog", "log_type"),
        ("predict_streamed_log", 7, f"{PACKAGE}.OtherLog", "log_type"),
    ),
    "BatchingParameters": (
        ("max_batch_size", 1, _INTEGER, ""),
        ("batch_timeout_micros", 2, _INTEGER, ""),
        ("max_enqueued_batches", 3, _INTEGER, ""),
        ("num_batch_threads", 4, _INTEGER, ""),
        ("thread_pool_name", 5, "google.protobuf.StringValue", ""),
        ("allowed_batch_sizes", 6, "int64", REPEATED),
        ("pad_variable_length_inputs", 7, "bool", ""),
        ("enable_large_batch_splitting", 8, "google.protobuf.BoolValue", ""),
        ("max_execution_batch_size", 9, _INTEGER, ""),
    ),
    "PrometheusConfig": (("enable", 1, "bool", ""), ("path", 2, "string", "")),
    "MonitoringConfig": (("prometheus_config", 1, f"{PACKAGE}.PrometheusConfig", ""),),
    "SSLConfig": (
        ("server_key", 1, "string", ""),
        ("server_cert", 2, "string", ""),
        ("custom_ca", 3, "string", ""),
        ("client_verify", 4, "bool", ""),
    ),
}

MESSAGES: dict[str, tuple[Field, ...]] = _PREDICTION | _MANAGEMENT | _FILES
"""TF Serving's messages by name."""

SERVING = Definitions(
    name="tidemill_serving/serving.proto",
    package=PACKAGE,
    messages=MESSAGES,
    enums={
        "VersionState": {"UNKNOWN": 0, "START": 10, "LOADING": 20, "AVAILABLE": 30, "UNLOADING": 40, "END": 50},
        "ModelType": {"MODEL_TYPE_UNSPECIFIED": 0, "TENSORFLOW": 1, "OTHER": 2},
    },
    services={
        "PredictionService": (
            Method("Classify", "ClassificationRequest", "ClassificationResponse"),
            Method("Regress", "RegressionRequest", "RegressionResponse"),
            Method("Predict", "PredictRequest", "PredictResponse"),
            Method("MultiInference", "MultiInferenceRequest", "MultiInferenceResponse"),
            Method("GetModelMetadata", "GetModelMetadataRequest", "GetModelMetadataResponse"),
        ),
        "ModelService": (
            Method("GetModelStatus", "GetModelStatusRequest", "GetModelStatusResponse"),
            Method("HandleReloadConfigRequest", "ReloadConfigRequest", "ReloadConfigResponse"),
        ),
    },
    imports=_IMPORTS,
)
"""TF Serving's definitions."""


_HEALTH = "grpc.health.v1"


def _reflection(version: str) -> Definitions:
    package = f"grpc.reflection.{version}"
    return Definitions(
        name=f"grpc/reflection/{version}/reflection.proto",
        package=package,
        messages={
            "ServerReflectionRequest": (
                ("host", 1, "string", ""),
                ("file_by_filename", 3, "string", "message_request"),
                ("file_containing_symbol", 4, "string", "message_request"),
                ("file_containing_extension", 5, f"{package}.ExtensionRequest", "message_request"),
                ("all_extension_numbers_of_type", 6, "string", "message_request"),
                ("list_services", 7, "string", "message_request"),
            ),
            "ExtensionRequest": (("containing_type", 1, "string", ""), ("extension_number", 2, "int32", "")),
            "ServerReflectionResponse": (
                ("valid_host", 1, "string", ""),
                ("original_request", 2, f"{package}.ServerReflectionRequest", ""),
                ("file_descriptor_response", 4, f"{package}.FileDescriptorResponse", "message_response"),
                ("all_extension_numbers_response", 5, f"{package}.ExtensionNumberResponse", "message_response"),
                ("list_services_response", 6, f"{package}.ListServiceResponse", "message_response"),
                ("error_response", 7, f"{package}.ErrorResponse", "message_response"),
            ),
            "FileDescriptorResponse": (("file_descriptor_proto", 1, "bytes", REPEATED),),
            "ExtensionNumberResponse": (
                ("base_type_name", 1, "string", ""),
                ("extension_number", 2, "int32", REPEATED),
            ),
            "ListServiceResponse": (("service", 1, f"{package}.ServiceResponse", REPEATED),),
            "ServiceResponse": (("name", 1, "string", ""),),
            "ErrorResponse": (("error_code", 1, "int32", ""), ("error_message", 2, "string", "")),
        },
        services={
            "ServerReflection": (
                Method(
                    "ServerReflectionInfo",
                    "ServerReflectionRequest",
                    "ServerReflectionResponse",
                    asks_often=True,
                    answers_often=True,
                ),
            )
        },
    )


PROTOCOLS = (
    Definitions(
        name="grpc/health/v1/health.proto",
        package=_HEALTH,
        messages={
            "HealthCheckRequest": (("service", 1, "string", ""),),
            "HealthCheckResponse": (("status", 1, f"enum {_HEALTH}.ServingStatus", ""),),
        },
        enums={"ServingStatus": {"UNKNOWN": 0, "SERVING": 1, "NOT_SERVING": 2, "SERVICE_UNKNOWN": 3}},
        services={
            "Health": (
                Method("Check", "HealthCheckRequest", "HealthCheckResponse"),
                Method("Watch", "HealthCheckRequest", "HealthCheckResponse", answers_often=True),
            )
        },
    ),
    _reflection("v1"),
    _reflection("v1alpha"),
    Definitions(
        name="tidemill_serving/profiler.proto",
        package="tensorflow",
        messages={
            "ProfileOptions": (
                ("host_tracer_level", 2, "uint32", ""),
                ("device_tracer_level", 3, "uint32", ""),
                ("python_tracer_level", 4, "uint32", ""),
                ("version", 5, "uint32", ""),
                ("duration_ms", 9, "uint64", ""),
            ),
            "ProfileRequest": (
                ("duration_ms", 1, "uint64", ""),
                ("opts", 4, "tensorflow.ProfileOptions", ""),
                ("repository_root", 5, "string", ""),
                ("session_id", 6, "string", ""),
                ("host_name", 7, "string", ""),
                ("emit_xspace", 9, "bool", ""),
            ),
            "ProfileResponse": (("empty_trace", 7, "bool", ""), ("xspace", 8, "bytes", "")),
            "XLine": (("events", 4, "bytes", REPEATED),),
            "XPlane": (("lines", 3, "tensorflow.XLine", REPEATED),),
            "XSpace": (("planes", 1, "tensorflow.XPlane", REPEATED), ("hostnames", 4, "string", REPEATED)),
        },
        services={"ProfilerService": (Method("Profile", "ProfileRequest", "ProfileResponse"),)},
    ),
)
"""Definitions of other protocols. Of the profiler's, only what the server reads: the rest is kept unread."""

ENUMS = {name: numbers for file in (SERVING, *PROTOCOLS) for name, numbers in file.enums.items()}
"""Enumerations by name."""

SERVICES = tuple(f"{file.package}.{name}" for file in (SERVING, *PROTOCOLS) for name in file.services)
"""Full names of the services."""
