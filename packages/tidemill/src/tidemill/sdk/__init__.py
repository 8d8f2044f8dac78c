"""The estimator API: train a TensorFlow script as a job, deploy what it made, ask the endpoint.

An ordinary AWS client: it speaks HTTP to the service and knows nothing else of it. Importing it loads neither boto3 nor
TensorFlow; nothing is started before the first request.
"""

from tidemill.sdk.compiler import TrainingCompilerConfig
from tidemill.sdk.estimator import TensorFlow
from tidemill.sdk.inputs import ShuffleConfig, TrainingInput, s3_input
from tidemill.sdk.model import Model, TensorFlowModel
from tidemill.sdk.predictor import Predictor, TensorFlowPredictor
from tidemill.sdk.session import LocalSession, Session, get_execution_role
from tidemill.sdk.training_job import TrainingJob

__all__ = [
    "LocalSession",
    "Model",
    "Predictor",
    "Session",
    "ShuffleConfig",
    "TensorFlow",
    "TensorFlowModel",
    "TensorFlowPredictor",
    "TrainingCompilerConfig",
    "TrainingInput",
    "TrainingJob",
    "get_execution_role",
    "s3_input",
]
