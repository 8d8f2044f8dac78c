"""A pipeline with version 3 of AWS's SDK: prepare, train, evaluate; register a good model, and fail for a bad one."""

import io

import boto3
import numpy as np
from sagemaker.core.helper.session_helper import Session, get_execution_role
from sagemaker.core.processing import ScriptProcessor
from sagemaker.core.shapes import ProcessingInput, ProcessingOutput, ProcessingS3Input, ProcessingS3Output
from sagemaker.core.workflow.conditions import ConditionLessThanOrEqualTo
from sagemaker.core.workflow.functions import JsonGet
from sagemaker.core.workflow.parameters import ParameterFloat, ParameterInteger
from sagemaker.core.workflow.pipeline_context import PipelineSession
from sagemaker.core.workflow.properties import PropertyFile
from sagemaker.mlops.workflow.condition_step import ConditionStep
from sagemaker.mlops.workflow.fail_step import FailStep
from sagemaker.mlops.workflow.model_step import ModelStep
from sagemaker.mlops.workflow.pipeline import Pipeline
from sagemaker.mlops.workflow.steps import CacheConfig, ProcessingStep, TrainingStep
from sagemaker.serve import ModelBuilder
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, InputData, SourceCode

IMAGE = "763104351884.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py311"
SERVING = "763104351884.dkr.ecr.us-west-2.amazonaws.com/tensorflow-inference:2.21.0-cpu"
SKLEARN = "246618743249.dkr.ecr.us-west-2.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"

session = PipelineSession()
role = get_execution_role(Session())
bucket = session.default_bucket()
prefix = "pipeline-v3"
cache = CacheConfig(enable_caching=True, expire_after="PT1H")
generator = np.random.default_rng(1)
for kind in ("train", "test"):
    buffer = io.BytesIO()
    np.save(buffer, generator.normal(3, 2, (200, 4)))
    boto3.client("s3").put_object(Bucket=bucket, Key=f"{prefix}/raw/x_{kind}_0.npy", Body=buffer.getvalue())

epochs = ParameterInteger(name="Epochs", default_value=4)
threshold = ParameterFloat(name="MaximumMse", default_value=5.0)


def source(name, uri, directory):
    s3 = ProcessingS3Input(
        s3_uri=uri, s3_data_type="S3Prefix", local_path=f"/opt/ml/processing/{directory}", s3_input_mode="File"
    )
    return ProcessingInput(input_name=name, s3_input=s3)


def target(name):
    s3 = ProcessingS3Output(
        s3_uri=f"s3://{bucket}/{prefix}/{name}", local_path=f"/opt/ml/processing/{name}", s3_upload_mode="EndOfJob"
    )
    return ProcessingOutput(output_name=name, s3_output=s3)


def processor(image):
    return ScriptProcessor(
        image_uri=image,
        command=["python3"],
        role=role,
        instance_type="ml.m5.xlarge",
        instance_count=1,
        sagemaker_session=session,
    )


prepare = ProcessingStep(
    name="Prepare",
    step_args=processor(SKLEARN).run(
        code="preprocess.py",
        inputs=[source("raw", f"s3://{bucket}/{prefix}/raw", "input")],
        outputs=[target("train"), target("test")],
    ),
    cache_config=cache,
)


def output(name):
    return prepare.properties.ProcessingOutputConfig.Outputs[name].S3Output.S3Uri


trainer = ModelTrainer(
    sagemaker_session=session,
    role=role,
    training_image=IMAGE,
    source_code=SourceCode(source_dir=".", entry_script="train.py"),
    compute=Compute(instance_type="ml.m5.xlarge", instance_count=1),
    hyperparameters={"epochs": epochs, "learning_rate": 0.1},
)
train = TrainingStep(
    name="Train",
    step_args=trainer.train(
        input_data_config=[
            InputData(channel_name="train", data_source=output("train")),
            InputData(channel_name="test", data_source=output("test")),
        ]
    ),
    cache_config=cache,
)
report = PropertyFile(name="Report", output_name="evaluation", path="evaluation.json")
evaluate = ProcessingStep(
    name="Evaluate",
    step_args=processor(IMAGE).run(
        code="evaluate.py",
        inputs=[
            source("model", train.properties.ModelArtifacts.S3ModelArtifacts, "model"),
            source("test", output("test"), "test"),
        ],
        outputs=[target("evaluation")],
    ),
    property_files=[report],
)
mse = JsonGet(step_name=evaluate.name, property_file=report, json_path="regression_metrics.mse.value")
builder = ModelBuilder(
    image_uri=SERVING,
    s3_model_data_url=train.properties.ModelArtifacts.S3ModelArtifacts,
    role_arn=role,
    sagemaker_session=session,
    instance_type="ml.m5.xlarge",
)
register = ModelStep(
    name="Register",
    step_args=builder.register(
        model_package_group_name="housing-v3",
        content_types=["application/json"],
        response_types=["application/json"],
        inference_instances=["ml.m5.xlarge"],
        transform_instances=["ml.m5.xlarge"],
        approval_status="Approved",
    ),
)
good = ConditionStep(
    name="GoodEnough",
    conditions=[ConditionLessThanOrEqualTo(left=mse, right=threshold)],
    if_steps=[register],
    else_steps=[FailStep(name="TooBad", error_message="the model is too bad")],
)
pipeline = Pipeline(
    name="housing-v3", parameters=[epochs, threshold], steps=[prepare, train, evaluate, good], sagemaker_session=session
)
pipeline.upsert(role_arn=role)
execution = pipeline.start()
execution.wait(delay=1, max_attempts=600)
print("EXECUTED", execution.describe()["PipelineExecutionStatus"], len(execution.list_steps()))
packages = boto3.client("sagemaker").list_model_packages(ModelPackageGroupName="housing-v3")["ModelPackageSummaryList"]
print("REGISTERED", [(each["ModelPackageVersion"], each["ModelApprovalStatus"]) for each in packages])
execution = pipeline.start({"MaximumMse": 0.0})
try:
    execution.wait(delay=1, max_attempts=600)
except Exception as error:
    print("WAITED", type(error).__name__)
print("CACHED", sorted(step["StepName"] for step in execution.list_steps() if "CacheHitResult" in step))
print("FAILED", execution.describe()["FailureReason"].rpartition(": ")[2])
