"""The estimator API: train a TensorFlow script as a job, deploy the model, call the endpoint.

An ordinary AWS client: it uses the service only through HTTP. Importing it loads neither boto3 nor TensorFlow, and
nothing is started before the first request.
"""

from tidemill.sdk.asynchronous import AsyncInferenceConfig, AsyncInferenceResponse, AsyncPredictor, WaiterConfig
from tidemill.sdk.compiler import TrainingCompilerConfig
from tidemill.sdk.data_capture import DataCaptureConfig
from tidemill.sdk.estimator import TensorFlow
from tidemill.sdk.framework_processor import FrameworkProcessor, SKLearnProcessor, TensorFlowProcessor
from tidemill.sdk.inputs import ShuffleConfig, TrainingInput, s3_input
from tidemill.sdk.instance_group import InstanceGroup
from tidemill.sdk.model import Model, ModelPackage
from tidemill.sdk.model_metrics import MetadataProperties, MetricsSource, ModelMetrics
from tidemill.sdk.network import NetworkConfig
from tidemill.sdk.parameter import CategoricalParameter, ContinuousParameter, IntegerParameter
from tidemill.sdk.polled_job import TransformJob
from tidemill.sdk.predictor import Predictor, TensorFlowPredictor
from tidemill.sdk.processing import Processor, ProcessorOptions, ScriptProcessor
from tidemill.sdk.processing_job import ProcessingInput, ProcessingJob, ProcessingOutput
from tidemill.sdk.run import Run, list_runs, load_run
from tidemill.sdk.serverless import ServerlessInferenceConfig
from tidemill.sdk.session import LocalSession, Session, get_execution_role
from tidemill.sdk.submitted_tuning import HyperparameterTuningJobAnalytics
from tidemill.sdk.tensorflow_model import TensorFlowModel
from tidemill.sdk.training_job import TrainingJob
from tidemill.sdk.transformer import Transformer, TransformerOptions
from tidemill.sdk.tuner import HyperparameterTuner
from tidemill.sdk.tuning_settings import (
    HyperbandStrategyConfig,
    StrategyConfig,
    TuningJobCompletionCriteriaConfig,
    WarmStartConfig,
    WarmStartTypes,
)

__all__ = [
    "AsyncInferenceConfig",
    "AsyncInferenceResponse",
    "AsyncPredictor",
    "CategoricalParameter",
    "ContinuousParameter",
    "DataCaptureConfig",
    "FrameworkProcessor",
    "HyperbandStrategyConfig",
    "HyperparameterTuner",
    "HyperparameterTuningJobAnalytics",
    "InstanceGroup",
    "IntegerParameter",
    "LocalSession",
    "MetadataProperties",
    "MetricsSource",
    "Model",
    "ModelMetrics",
    "ModelPackage",
    "NetworkConfig",
    "Predictor",
    "ProcessingInput",
    "ProcessingJob",
    "ProcessingOutput",
    "Processor",
    "ProcessorOptions",
    "Run",
    "SKLearnProcessor",
    "ScriptProcessor",
    "ServerlessInferenceConfig",
    "Session",
    "ShuffleConfig",
    "StrategyConfig",
    "TensorFlow",
    "TensorFlowModel",
    "TensorFlowPredictor",
    "TensorFlowProcessor",
    "TrainingCompilerConfig",
    "TrainingInput",
    "TrainingJob",
    "TransformJob",
    "Transformer",
    "TransformerOptions",
    "TuningJobCompletionCriteriaConfig",
    "WaiterConfig",
    "WarmStartConfig",
    "WarmStartTypes",
    "get_execution_role",
    "list_runs",
    "load_run",
    "s3_input",
]
