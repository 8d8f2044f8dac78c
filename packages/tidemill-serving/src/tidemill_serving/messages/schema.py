"""The fields of TF Serving's messages: names, numbers and types, as published with tensorflow-serving-api.

Messages and enumerations that are published as nested types are listed here at the top level under a separate name:
neither the wire format nor the text format contains the declaring message.
"""

PACKAGE = "tensorflow.serving"
REPEATED, MAP = "repeated", "map"
Field = tuple[str, int, str, str]
"""Name, number, type, label: empty, `REPEATED`, `MAP`, or the name of a oneof."""

_TENSOR = "tensorflow.TensorProto"
_EXAMPLE = "tensorflow.Example"
_SPEC = f"{PACKAGE}.ModelSpec"
_INTEGER = "google.protobuf.Int64Value"
_POLICY = "ServableVersionPolicy"

DEPENDENCIES = (
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
    "LoggingConfig": (),
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

_FILES: dict[str, tuple[Field, ...]] = {
    "PredictLog": (("request", 1, f"{PACKAGE}.PredictRequest", ""),),
    "ClassifyLog": (("request", 1, f"{PACKAGE}.ClassificationRequest", ""),),
    "RegressLog": (("request", 1, f"{PACKAGE}.RegressionRequest", ""),),
    "MultiInferenceLog": (("request", 1, f"{PACKAGE}.MultiInferenceRequest", ""),),
    "OtherLog": (),
    "PredictionLog": (
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
}

_HEALTH: dict[str, tuple[Field, ...]] = {
    "HealthCheckRequest": (("service", 1, "string", ""),),
    "HealthCheckResponse": (("status", 1, "int32", ""),),
}
"""Messages of grpc.health.v1; the wire format does not contain their package."""

MESSAGES: dict[str, tuple[Field, ...]] = _PREDICTION | _MANAGEMENT | _FILES | _HEALTH
"""Messages by name."""

ENUMS: dict[str, dict[str, int]] = {
    "VersionState": {"UNKNOWN": 0, "START": 10, "LOADING": 20, "AVAILABLE": 30, "UNLOADING": 40, "END": 50},
    "ModelType": {"MODEL_TYPE_UNSPECIFIED": 0, "TENSORFLOW": 1, "OTHER": 2},
}
"""Enumerations by name."""
