"""The provided import names: public names of AWS's SDK that clients of its estimators use.

Values are ``module:attribute`` of this package. A module is loaded when the name is first used.
"""

from collections.abc import Mapping


def _of(module: str, *names: str) -> dict[str, str]:
    return {name: f"tidemill.sdk.{module}:{name}" for name in names}


def _top(*names: str) -> dict[str, str]:
    return {name: f"tidemill.sdk:{name}" for name in names}


_ESTIMATOR = _top("TensorFlow")
_INPUTS = _top("ShuffleConfig", "TrainingInput", "s3_input")
_MODEL = _top("TensorFlowModel", "TensorFlowPredictor")
_COMPILER = _top("TrainingCompilerConfig")
_PREDICTOR = {
    **_top("Predictor"),
    "RealTimePredictor": "tidemill.sdk:Predictor",
    **_of("serializers", "BytesDeserializer", "StreamDeserializer", "StringDeserializer"),
    **_of("serializers", "csv_deserializer", "csv_serializer", "json_deserializer", "json_serializer"),
    **_of("serializers", "npy_serializer", "numpy_deserializer"),
}
_SERIALIZERS = _of(
    "serializers",
    *("BaseSerializer", "CSVSerializer", "IdentitySerializer", "JSONLinesSerializer", "JSONSerializer"),
    *("NumpySerializer", "SimpleBaseSerializer", "StringSerializer"),
)
_DESERIALIZERS = _of(
    "serializers",
    *("BaseDeserializer", "BytesDeserializer", "CSVDeserializer", "JSONDeserializer", "JSONLinesDeserializer"),
    *("NumpyDeserializer", "SimpleBaseDeserializer", "StreamDeserializer", "StringDeserializer"),
)
_PACKAGE = _top("Model", "ModelPackage")
_TRANSFORMER = _top("Transformer")
_CAPTURE = _top("DataCaptureConfig")
_ASYNC = _top("AsyncInferenceConfig", "AsyncInferenceResponse", "WaiterConfig")
_SERVERLESS = _top("ServerlessInferenceConfig")
_PROCESSORS = {
    **_top("FrameworkProcessor", "ProcessingInput", "ProcessingJob", "ProcessingOutput", "Processor"),
    **_top("ScriptProcessor"),
    **_of("processing", "RunArgs"),
}
_SESSION = _top("Session", "get_execution_role")
_LOCAL = _top("LocalSession")
_PARAMETERS = _top("CategoricalParameter", "ContinuousParameter", "IntegerParameter")
_TUNER = {
    **_top("HyperbandStrategyConfig", "HyperparameterTuner", "StrategyConfig", "TuningJobCompletionCriteriaConfig"),
    **_top("WarmStartConfig", "WarmStartTypes"),
    **_PARAMETERS,
    **_of("tuner", "create_identical_dataset_and_algorithm_tuner", "create_transfer_learning_tuner"),
}
_ANALYTICS = {
    **_top("HyperparameterTuningJobAnalytics"),
    **_of("analytics", "ExperimentAnalytics", "TrainingJobAnalytics"),
}
_ESTIMATORS = {
    **_of("generic_estimator", "Estimator"),
    "EstimatorBase": "tidemill.sdk:TensorFlow",
    "Framework": "tidemill.sdk:TensorFlow",
}
_S3 = _of("s3", "S3Downloader", "S3Uploader", "determine_bucket_and_prefix", "parse_s3_url", "s3_path_join")
_PIPELINE_SESSION = _of("workflow.pipeline_session", "LocalPipelineSession", "PipelineSession")
_PARALLELISM = _of("workflow.options", "ParallelismConfiguration")
_CONDITIONS = _of(
    "workflow.conditions",
    *("Condition", "ConditionEquals", "ConditionGreaterThan", "ConditionGreaterThanOrEqualTo", "ConditionIn"),
    *("ConditionLessThan", "ConditionLessThanOrEqualTo", "ConditionNot", "ConditionOr"),
)
_FUNCTIONS = _of("expressions", "Join", "JsonGet")
_IS_VARIABLE = _of("variable", "is_pipeline_variable")

_WORKFLOW: Mapping[str, Mapping[str, str]] = {
    "sagemaker.workflow": _IS_VARIABLE,
    "sagemaker.workflow.condition_step": {**_of("workflow.steps", "ConditionStep"), "JsonGet": _FUNCTIONS["JsonGet"]},
    "sagemaker.workflow.conditions": _CONDITIONS,
    "sagemaker.workflow.endpoint_step": _of("workflow.endpoint_steps", "EndpointConfigStep", "EndpointStep"),
    "sagemaker.workflow.entities": _of("variable", "PipelineVariable"),
    "sagemaker.workflow.execution_variables": _of("pipeline_parameters", "ExecutionVariable", "ExecutionVariables"),
    "sagemaker.workflow.fail_step": _of("workflow.steps", "FailStep"),
    "sagemaker.workflow.functions": _FUNCTIONS,
    "sagemaker.workflow.model_step": _of("workflow.model_step", "ModelStep"),
    "sagemaker.workflow.parallelism_config": _PARALLELISM,
    "sagemaker.workflow.parameters": _of(
        "pipeline_parameters",
        *("Parameter", "ParameterBoolean", "ParameterFloat", "ParameterInteger", "ParameterString"),
    ),
    "sagemaker.workflow.pipeline": {**_of("workflow.pipeline", "Pipeline"), **_PARALLELISM},
    "sagemaker.workflow.pipeline_context": _PIPELINE_SESSION,
    "sagemaker.workflow.pipeline_definition_config": _of("workflow.options", "PipelineDefinitionConfig"),
    "sagemaker.workflow.pipeline_experiment_config": _of("workflow.options", "PipelineExperimentConfig"),
    "sagemaker.workflow.properties": _of("expressions", "Properties", "PropertyFile"),
    "sagemaker.workflow.retry": _of(
        "workflow.options",
        *("RetryPolicy", "SageMakerJobExceptionTypeEnum", "SageMakerJobStepRetryPolicy", "StepExceptionTypeEnum"),
        "StepRetryPolicy",
    ),
    "sagemaker.workflow.selective_execution_config": _of("workflow.options", "SelectiveExecutionConfig"),
    "sagemaker.workflow.step_collections": {
        **_of("workflow.model_step", "RegisterModel"),
        **_of("workflow.steps", "StepCollection"),
    },
    "sagemaker.workflow.steps": {
        **_of("workflow.steps", "ProcessingStep", "Step", "TrainingStep", "TransformStep", "TuningStep"),
        **_of("workflow.model_step", "CreateModelStep"),
        **_of("workflow.options", "CacheConfig"),
    },
}

MODULES: Mapping[str, Mapping[str, str]] = {
    "sagemaker": {
        **_SESSION,
        **_LOCAL,
        **_INPUTS,
        **_PREDICTOR,
        **_PACKAGE,
        **_TRANSFORMER,
        **_ANALYTICS,
        "Estimator": _ESTIMATORS["Estimator"],
    },
    "sagemaker.analytics": _ANALYTICS,
    "sagemaker.async_inference": _ASYNC,
    "sagemaker.async_inference.async_inference_config": {"AsyncInferenceConfig": _ASYNC["AsyncInferenceConfig"]},
    "sagemaker.async_inference.async_inference_response": {"AsyncInferenceResponse": _ASYNC["AsyncInferenceResponse"]},
    "sagemaker.async_inference.waiter_config": {"WaiterConfig": _ASYNC["WaiterConfig"]},
    "sagemaker.base_deserializers": _DESERIALIZERS,
    "sagemaker.base_serializers": _SERIALIZERS,
    "sagemaker.debugger": _of(
        "debugger",
        *("CollectionConfig", "DebuggerHookConfig", "ProfilerConfig", "ProfilerRule", "Rule"),
        *("TensorBoardOutputConfig", "rule_configs"),
    ),
    "sagemaker.estimator": _ESTIMATORS,
    "sagemaker.exceptions": {"UnexpectedStatusException": "tidemill.errors:JobFailed"},
    "sagemaker.image_uris": _of("image_uris", "retrieve"),
    "sagemaker.content_types": _of(
        "content_types", "CONTENT_TYPE_CSV", "CONTENT_TYPE_JSON", "CONTENT_TYPE_NPY", "CONTENT_TYPE_OCTET_STREAM"
    ),
    "sagemaker.deserializers": _DESERIALIZERS,
    "sagemaker.experiments": _top("Run", "load_run"),
    "sagemaker.experiments.run": _top("Run", "list_runs", "load_run"),
    "sagemaker.inputs": {**_INPUTS, **_of("inputs", "CreateModelInput", "TransformInput")},
    "sagemaker.instance_group": _top("InstanceGroup"),
    "sagemaker.local": {**_LOCAL, "LocalSagemakerSession": "tidemill.sdk:LocalSession"},
    "sagemaker.local.local_session": _LOCAL,
    "sagemaker.metadata_properties": _top("MetadataProperties"),
    "sagemaker.model": _PACKAGE,
    "sagemaker.model_metrics": _top("MetricsSource", "ModelMetrics"),
    "sagemaker.model_monitor": _CAPTURE,
    "sagemaker.model_monitor.data_capture_config": _CAPTURE,
    "sagemaker.multidatamodel": _of("multi_data_model", "MultiDataModel"),
    "sagemaker.parameter": _PARAMETERS,
    "sagemaker.network": _top("NetworkConfig"),
    "sagemaker.predictor": _PREDICTOR,
    "sagemaker.predictor_async": _top("AsyncPredictor"),
    "sagemaker.processing": _PROCESSORS,
    "sagemaker.s3": _S3,
    "sagemaker.s3_utils": {name: _S3[name] for name in ("parse_s3_url", "s3_path_join")},
    "sagemaker.serializers": _SERIALIZERS,
    "sagemaker.serverless": _SERVERLESS,
    "sagemaker.serverless.serverless_inference_config": _SERVERLESS,
    "sagemaker.session": {**_SESSION, **_INPUTS, **_of("hosting", "production_variant")},
    "sagemaker.sklearn": _top("SKLearnProcessor"),
    "sagemaker.sklearn.processing": _top("SKLearnProcessor"),
    "sagemaker.tensorflow": {**_ESTIMATOR, **_MODEL, **_COMPILER, **_top("TensorFlowProcessor")},
    "sagemaker.tensorflow.estimator": _ESTIMATOR,
    "sagemaker.tensorflow.model": _MODEL,
    "sagemaker.tensorflow.predictor": _of(
        "tensorflow_serializers",
        *("tf_csv_serializer", "tf_deserializer", "tf_json_deserializer", "tf_json_serializer"),
        "tf_serializer",
    ),
    "sagemaker.tensorflow.processing": _top("TensorFlowProcessor"),
    "sagemaker.tensorflow.serving": {
        "Model": "tidemill.sdk:TensorFlowModel",
        "Predictor": "tidemill.sdk:TensorFlowPredictor",
    },
    "sagemaker.tensorflow.training_compiler": _COMPILER,
    "sagemaker.tensorflow.training_compiler.config": _COMPILER,
    "sagemaker.transformer": _TRANSFORMER,
    "sagemaker.tuner": _TUNER,
    "sagemaker.utils": {
        **_of(
            "naming",
            *("base_from_name", "base_name_from_image", "get_short_version", "name_from_base", "name_from_image"),
            *("sagemaker_short_timestamp", "sagemaker_timestamp", "to_string", "unique_name_from_base"),
        ),
        **_IS_VARIABLE,
    },
    **_WORKFLOW,
}

_REFUSED_STEP = (
    "the service refuses steps of this type; it runs Training, Processing, Tuning, Transform, Model, RegisterModel,"
    " EndpointConfig, Endpoint, Condition and Fail steps (docs/how-to/pipelines.md). Instead, "
)
INSTEAD: Mapping[str, str] = {
    **{
        f"sagemaker.workflow.{name}": f"{_REFUSED_STEP}{instead}"
        for name, instead in {
            "automl_step": "train in a TrainingStep",
            "callback_step": "wait in the script of a ProcessingStep",
            "check_job_config": "compare the data in the script of a ProcessingStep",
            "clarify_check_step": "compare the data in the script of a ProcessingStep",
            "emr_step": "compute in the script of a ProcessingStep",
            "function_step": "put the function into the script of a ProcessingStep",
            "lambda_step": "run the code in the script of a ProcessingStep, or after execution.wait()",
            "notebook_job_step": "convert the notebook to a script, and run it in a ProcessingStep",
            "quality_check_step": "compare the data in the script of a ProcessingStep",
        }.items()
    },
    "sagemaker.debugger.FrameworkProfile": "there is no profiler of SageMaker here; profile the script by tf.profiler",
    "sagemaker.lambda_helper": "there is no Lambda here; call the function in the client",
    "sagemaker.pipeline": "a model has one container here; put both parts into one script with handlers",
    "sagemaker.pytorch": "there is no PyTorch here; tidemill runs TensorFlow and scikit-learn",
    "sagemaker.feature_store": "there is no feature store here; keep the features in S3",
    "sagemaker.jumpstart": "there are no models of JumpStart here; give TensorFlowModel your own archive",
    "sagemaker.remote_function": "give the function's script to TensorFlow(entry_point=...)",
    "sagemaker.workflow.step_collections.EstimatorTransformer": "use a ModelStep and a TransformStep",
}
"""What to do instead of importing a module or a name of AWS's SDK that tidemill does not provide."""
