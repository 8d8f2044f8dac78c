"""One pipeline with AWS's SDK: prepare, train, evaluate; register a model that is good enough, and fail otherwise."""

import io
import sys

import boto3
import numpy as np
import sagemaker
from sagemaker.inputs import TrainingInput
from sagemaker.processing import ProcessingInput, ProcessingOutput
from sagemaker.sklearn.processing import SKLearnProcessor
from sagemaker.tensorflow import TensorFlow, TensorFlowModel, TensorFlowProcessor
from sagemaker.utils import name_from_base
from sagemaker.workflow.condition_step import ConditionStep
from sagemaker.workflow.conditions import ConditionLessThanOrEqualTo
from sagemaker.workflow.fail_step import FailStep
from sagemaker.workflow.functions import Join, JsonGet
from sagemaker.workflow.model_step import ModelStep
from sagemaker.workflow.parameters import ParameterFloat, ParameterInteger, ParameterString
from sagemaker.workflow.pipeline import Pipeline
from sagemaker.workflow.pipeline_context import PipelineSession
from sagemaker.workflow.properties import PropertyFile
from sagemaker.workflow.steps import CacheConfig, ProcessingStep, TrainingStep

session = PipelineSession()
role = sagemaker.get_execution_role(sagemaker.Session())
bucket = session.default_bucket()
prefix = name_from_base("housing")
group = name_from_base("housing-models")

generator = np.random.default_rng(1)
for kind in ("train", "test"):
    buffer = io.BytesIO()
    np.save(buffer, generator.normal(3, 2, (200, 4)))
    boto3.client("s3").put_object(Bucket=bucket, Key=f"{prefix}/raw/x_{kind}_0.npy", Body=buffer.getvalue())

raw = ParameterString("InputData", default_value=f"s3://{bucket}/{prefix}/raw")
epochs = ParameterInteger("Epochs", default_value=3)
threshold = ParameterFloat("MaximumMse", default_value=5.0)
cache = CacheConfig(enable_caching=True, expire_after="PT1H")

prepare = ProcessingStep(
    name="Prepare",
    step_args=SKLearnProcessor(
        framework_version="1.2-1",
        role=role,
        instance_type="ml.m5.xlarge",
        instance_count=1,
        sagemaker_session=session,
    ).run(
        code="preprocess.py",
        inputs=[ProcessingInput(source=raw, destination="/opt/ml/processing/input")],
        outputs=[
            ProcessingOutput(output_name="train", source="/opt/ml/processing/train"),
            ProcessingOutput(output_name="test", source="/opt/ml/processing/test"),
        ],
    ),
    cache_config=cache,
)


def output(name):
    return prepare.properties.ProcessingOutputConfig.Outputs[name].S3Output.S3Uri


estimator = TensorFlow(
    entry_point="train.py",
    role=role,
    framework_version="2.19",
    py_version="py312",
    instance_type="ml.m5.xlarge",
    instance_count=1,
    model_dir="/opt/ml/model",
    hyperparameters={"epochs": epochs, "learning_rate": 0.1},
    sagemaker_session=session,
)
train = TrainingStep(
    name="Train",
    step_args=estimator.fit({"train": TrainingInput(output("train")), "test": TrainingInput(output("test"))}),
    cache_config=cache,
)
report = PropertyFile(name="EvaluationReport", output_name="evaluation", path="evaluation.json")
evaluate = ProcessingStep(
    name="Evaluate",
    step_args=TensorFlowProcessor(
        framework_version="2.19",
        py_version="py312",
        role=role,
        instance_type="ml.m5.xlarge",
        instance_count=1,
        sagemaker_session=session,
    ).run(
        code="evaluate.py",
        inputs=[
            ProcessingInput(
                source=train.properties.ModelArtifacts.S3ModelArtifacts, destination="/opt/ml/processing/model"
            ),
            ProcessingInput(source=output("test"), destination="/opt/ml/processing/test"),
        ],
        outputs=[ProcessingOutput(output_name="evaluation", source="/opt/ml/processing/evaluation")],
    ),
    property_files=[report],
)
register = ModelStep(
    name="Register",
    step_args=TensorFlowModel(
        model_data=train.properties.ModelArtifacts.S3ModelArtifacts,
        role=role,
        entry_point="inference.py",
        framework_version="2.19",
        sagemaker_session=session,
    ).register(
        content_types=["application/json"],
        response_types=["application/json"],
        inference_instances=["ml.m5.xlarge"],
        transform_instances=["ml.m5.xlarge"],
        model_package_group_name=group,
        approval_status="Approved",
    ),
)
mse = JsonGet(step_name=evaluate.name, property_file=report, json_path="regression_metrics.mse.value")
good = ConditionStep(
    name="GoodEnough",
    conditions=[ConditionLessThanOrEqualTo(left=mse, right=threshold)],
    if_steps=[register],
    else_steps=[FailStep(name="TooBad", error_message=Join(on=" ", values=["MSE is above", threshold]))],
)
pipeline = Pipeline(
    name=name_from_base("housing-pipeline"),
    parameters=[raw, epochs, threshold],
    steps=[prepare, train, evaluate, good],
    sagemaker_session=session,
)
pipeline.upsert(role_arn=role)


def execute(**parameters):
    execution = pipeline.start(parameters=parameters)
    try:
        execution.wait(delay=1, max_attempts=600)
    except Exception as error:
        print("WAITED", type(error).__name__)
    steps = {step["StepName"]: step for step in execution.list_steps()}
    statuses = sorted((name, step["StepStatus"]) for name, step in steps.items())
    print("EXECUTED", execution.describe()["PipelineExecutionStatus"], statuses)
    for name, step in steps.items():
        if step["StepStatus"] == "Failed":
            print("REASON", name, step.get("FailureReason"), file=sys.stderr)
    return steps


execute(Epochs=4)
packages = session.sagemaker_client.list_model_packages(ModelPackageGroupName=group)["ModelPackageSummaryList"]
print("REGISTERED", [(each["ModelPackageVersion"], each["ModelApprovalStatus"]) for each in packages])
again = execute(Epochs=4, MaximumMse=0.0)
print("CACHED", sorted(name for name, step in again.items() if "CacheHitResult" in step))
print("FAILED", again["TooBad"]["FailureReason"])
