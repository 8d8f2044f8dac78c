"""Which import names are answered, and by what: the public names of AWS's SDK that clients of its estimators use.

Right-hand sides are ``module:attribute`` of this package. Nothing of it is loaded before somebody imports the name.
"""

from collections.abc import Mapping

__all__ = ["MODULES"]

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
_PREDICTOR = {
    "Predictor": "tidemill.sdk:Predictor",
    "RealTimePredictor": "tidemill.sdk:Predictor",
    "csv_deserializer": "tidemill.sdk.serializers:csv_deserializer",
    "csv_serializer": "tidemill.sdk.serializers:csv_serializer",
    "json_deserializer": "tidemill.sdk.serializers:json_deserializer",
    "json_serializer": "tidemill.sdk.serializers:json_serializer",
}
_SESSION = {
    "Session": "tidemill.sdk:Session",
    "get_execution_role": "tidemill.sdk:get_execution_role",
}
_LOCAL = {"LocalSession": "tidemill.sdk:LocalSession"}

MODULES: Mapping[str, Mapping[str, str]] = {
    "sagemaker": {**_SESSION, **_LOCAL, **_INPUTS, **_PREDICTOR, "Model": "tidemill.sdk:Model"},
    "sagemaker.deserializers": {
        name: f"tidemill.sdk.serializers:{name}"
        for name in ("BytesDeserializer", "CSVDeserializer", "JSONDeserializer", "StringDeserializer")
    },
    "sagemaker.inputs": _INPUTS,
    "sagemaker.local": {**_LOCAL, "LocalSagemakerSession": "tidemill.sdk:LocalSession"},
    "sagemaker.model": {"Model": "tidemill.sdk:Model"},
    "sagemaker.predictor": _PREDICTOR,
    "sagemaker.serializers": {
        name: f"tidemill.sdk.serializers:{name}"
        for name in ("CSVSerializer", "IdentitySerializer", "JSONLinesSerializer", "JSONSerializer")
    },
    "sagemaker.session": {**_SESSION, **_INPUTS},
    "sagemaker.tensorflow": {**_ESTIMATOR, **_MODEL, **_COMPILER},
    "sagemaker.tensorflow.estimator": _ESTIMATOR,
    "sagemaker.tensorflow.model": _MODEL,
    "sagemaker.tensorflow.serving": {
        "Model": "tidemill.sdk:TensorFlowModel",
        "Predictor": "tidemill.sdk:TensorFlowPredictor",
    },
    "sagemaker.tensorflow.training_compiler": _COMPILER,
    "sagemaker.tensorflow.training_compiler.config": _COMPILER,
}
