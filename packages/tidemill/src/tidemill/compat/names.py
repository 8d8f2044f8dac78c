"""The provided import names: public names of AWS's SDK that clients of its estimators use.

Values are ``module:attribute`` of this package. A module is loaded when the name is first used.
"""

from collections.abc import Mapping

_ESTIMATOR = {"TensorFlow": "tidemill.sdk:TensorFlow"}
_INPUTS = {
    "ShuffleConfig": "tidemill.sdk:ShuffleConfig",
    "TrainingInput": "tidemill.sdk:TrainingInput",
    "s3_input": "tidemill.sdk:s3_input",
}
_MODEL = {
    "TensorFlowModel": "tidemill.sdk:TensorFlowModel",
    "TensorFlowPredictor": "tidemill.sdk:TensorFlowPredictor",
}
_COMPILER = {"TrainingCompilerConfig": "tidemill.sdk:TrainingCompilerConfig"}
_DESERIALIZERS_OF_VERSION_1 = ("BytesDeserializer", "StreamDeserializer", "StringDeserializer")
_PREDICTOR = {
    "Predictor": "tidemill.sdk:Predictor",
    "RealTimePredictor": "tidemill.sdk:Predictor",
    **{name: f"tidemill.sdk.serializers:{name}" for name in _DESERIALIZERS_OF_VERSION_1},
    "csv_deserializer": "tidemill.sdk.serializers:csv_deserializer",
    "csv_serializer": "tidemill.sdk.serializers:csv_serializer",
    "json_deserializer": "tidemill.sdk.serializers:json_deserializer",
    "json_serializer": "tidemill.sdk.serializers:json_serializer",
    "npy_serializer": "tidemill.sdk.serializers:npy_serializer",
    "numpy_deserializer": "tidemill.sdk.serializers:numpy_deserializer",
}
_SERIALIZERS = {
    name: f"tidemill.sdk.serializers:{name}"
    for name in (
        *("BaseSerializer", "CSVSerializer", "IdentitySerializer", "JSONLinesSerializer", "JSONSerializer"),
        *("NumpySerializer", "SimpleBaseSerializer", "StringSerializer"),
    )
}
_DESERIALIZERS = {
    name: f"tidemill.sdk.serializers:{name}"
    for name in (
        *("BaseDeserializer", "BytesDeserializer", "CSVDeserializer", "JSONDeserializer", "JSONLinesDeserializer"),
        *("NumpyDeserializer", "SimpleBaseDeserializer", "StreamDeserializer", "StringDeserializer"),
    )
}
_PACKAGE = {name: f"tidemill.sdk:{name}" for name in ("Model", "ModelPackage")}
_TRANSFORMER = {"Transformer": "tidemill.sdk:Transformer"}
_CAPTURE = {"DataCaptureConfig": "tidemill.sdk:DataCaptureConfig"}
_ASYNC = {name: f"tidemill.sdk:{name}" for name in ("AsyncInferenceConfig", "AsyncInferenceResponse", "WaiterConfig")}
_SERVERLESS = {"ServerlessInferenceConfig": "tidemill.sdk:ServerlessInferenceConfig"}
_PROCESSORS = {
    name: f"tidemill.sdk:{name}"
    for name in (
        *("FrameworkProcessor", "ProcessingInput", "ProcessingJob", "ProcessingOutput", "Processor", "ScriptProcessor"),
    )
}
_SESSION = {
    "Session": "tidemill.sdk:Session",
    "get_execution_role": "tidemill.sdk:get_execution_role",
}
_LOCAL = {"LocalSession": "tidemill.sdk:LocalSession"}

_PARAMETERS = {
    name: f"tidemill.sdk:{name}" for name in ("CategoricalParameter", "ContinuousParameter", "IntegerParameter")
}
_TUNER = {
    **{
        name: f"tidemill.sdk:{name}"
        for name in (
            *("HyperbandStrategyConfig", "HyperparameterTuner", "StrategyConfig", "TuningJobCompletionCriteriaConfig"),
            *("WarmStartConfig", "WarmStartTypes"),
        )
    },
    **_PARAMETERS,
}
_ANALYTICS = {"HyperparameterTuningJobAnalytics": "tidemill.sdk:HyperparameterTuningJobAnalytics"}

MODULES: Mapping[str, Mapping[str, str]] = {
    "sagemaker": {**_SESSION, **_LOCAL, **_INPUTS, **_PREDICTOR, **_PACKAGE, **_TRANSFORMER, **_ANALYTICS},
    "sagemaker.analytics": _ANALYTICS,
    "sagemaker.async_inference": _ASYNC,
    "sagemaker.async_inference.async_inference_config": {"AsyncInferenceConfig": _ASYNC["AsyncInferenceConfig"]},
    "sagemaker.async_inference.async_inference_response": {"AsyncInferenceResponse": _ASYNC["AsyncInferenceResponse"]},
    "sagemaker.async_inference.waiter_config": {"WaiterConfig": _ASYNC["WaiterConfig"]},
    "sagemaker.base_deserializers": _DESERIALIZERS,
    "sagemaker.base_serializers": _SERIALIZERS,
    "sagemaker.content_types": {
        name: f"tidemill.sdk.content_types:{name}"
        for name in ("CONTENT_TYPE_CSV", "CONTENT_TYPE_JSON", "CONTENT_TYPE_NPY", "CONTENT_TYPE_OCTET_STREAM")
    },
    "sagemaker.deserializers": _DESERIALIZERS,
    "sagemaker.experiments": {"Run": "tidemill.sdk:Run", "load_run": "tidemill.sdk:load_run"},
    "sagemaker.experiments.run": {name: f"tidemill.sdk:{name}" for name in ("Run", "list_runs", "load_run")},
    "sagemaker.inputs": _INPUTS,
    "sagemaker.instance_group": {"InstanceGroup": "tidemill.sdk:InstanceGroup"},
    "sagemaker.local": {**_LOCAL, "LocalSagemakerSession": "tidemill.sdk:LocalSession"},
    "sagemaker.metadata_properties": {"MetadataProperties": "tidemill.sdk:MetadataProperties"},
    "sagemaker.model": _PACKAGE,
    "sagemaker.model_metrics": {name: f"tidemill.sdk:{name}" for name in ("MetricsSource", "ModelMetrics")},
    "sagemaker.model_monitor": _CAPTURE,
    "sagemaker.model_monitor.data_capture_config": _CAPTURE,
    "sagemaker.parameter": _PARAMETERS,
    "sagemaker.network": {"NetworkConfig": "tidemill.sdk:NetworkConfig"},
    "sagemaker.predictor": _PREDICTOR,
    "sagemaker.predictor_async": {"AsyncPredictor": "tidemill.sdk:AsyncPredictor"},
    "sagemaker.processing": _PROCESSORS,
    "sagemaker.serializers": _SERIALIZERS,
    "sagemaker.serverless": _SERVERLESS,
    "sagemaker.serverless.serverless_inference_config": _SERVERLESS,
    "sagemaker.session": {**_SESSION, **_INPUTS},
    "sagemaker.sklearn": {"SKLearnProcessor": "tidemill.sdk:SKLearnProcessor"},
    "sagemaker.sklearn.processing": {"SKLearnProcessor": "tidemill.sdk:SKLearnProcessor"},
    "sagemaker.tensorflow": {
        **_ESTIMATOR,
        **_MODEL,
        **_COMPILER,
        "TensorFlowProcessor": "tidemill.sdk:TensorFlowProcessor",
    },
    "sagemaker.tensorflow.estimator": _ESTIMATOR,
    "sagemaker.tensorflow.model": _MODEL,
    "sagemaker.tensorflow.predictor": {
        name: f"tidemill.sdk.tensorflow_serializers:{name}"
        for name in (
            *("tf_csv_serializer", "tf_deserializer", "tf_json_deserializer", "tf_json_serializer"),
            "tf_serializer",
        )
    },
    "sagemaker.tensorflow.processing": {"TensorFlowProcessor": "tidemill.sdk:TensorFlowProcessor"},
    "sagemaker.tensorflow.serving": {
        "Model": "tidemill.sdk:TensorFlowModel",
        "Predictor": "tidemill.sdk:TensorFlowPredictor",
    },
    "sagemaker.tensorflow.training_compiler": _COMPILER,
    "sagemaker.tensorflow.training_compiler.config": _COMPILER,
    "sagemaker.transformer": _TRANSFORMER,
    "sagemaker.tuner": _TUNER,
}

INSTEAD: Mapping[str, str] = {
    "sagemaker.workflow": (
        "tidemill runs pipelines, but does not write their definitions. Install version 2 of AWS's SDK"
        " (pip install 'sagemaker<3'), whose sagemaker.workflow works here unmodified, or send a definition by boto3's"
        " create_pipeline: docs/how-to/pipelines.md shows both"
    ),
}
"""What to do instead of importing a package of AWS's SDK that tidemill does not provide."""
