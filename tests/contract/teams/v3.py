"""The same team's work with version 3 of AWS's SDK: prepare, train, tune."""

import io

import boto3
import numpy as np
from sagemaker.core.helper.session_helper import Session, get_execution_role
from sagemaker.core.parameter import ContinuousParameter
from sagemaker.core.processing import ScriptProcessor
from sagemaker.core.resources import HyperParameterTuningJob, TrainingJob
from sagemaker.core.shapes import (
    ProcessingInput,
    ProcessingOutput,
    ProcessingS3Input,
    ProcessingS3Output,
)
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, InputData, OutputDataConfig, SourceCode
from sagemaker.train.tuner import HyperparameterTuner

REGISTRY = "763104351884.dkr.ecr.us-west-2.amazonaws.com"
IMAGE = f"{REGISTRY}/tensorflow-training:2.21.0-cpu-py311"
SKLEARN = "246618743249.dkr.ecr.us-west-2.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"

session = Session()
role = get_execution_role(session)
bucket = session.default_bucket()
prefix = "team-v3"
print("ROLE", role)

generator = np.random.default_rng(1)
for kind, rows in (("train", 400), ("test", 100)):
    buffer = io.BytesIO()
    np.save(buffer, generator.normal(3, 2, (rows, 4)))
    boto3.client("s3").put_object(Bucket=bucket, Key=f"{prefix}/raw/x_{kind}_0.npy", Body=buffer.getvalue())

processor = ScriptProcessor(
    image_uri=SKLEARN,
    command=["python3"],
    role=role,
    instance_type="ml.m5.xlarge",
    instance_count=1,
    base_job_name="team-prepare",
    sagemaker_session=session,
)


def output(name):
    s3 = ProcessingS3Output(
        s3_uri=f"s3://{bucket}/{prefix}/{name}", local_path=f"/opt/ml/processing/{name}", s3_upload_mode="EndOfJob"
    )
    return ProcessingOutput(output_name=name, s3_output=s3)


processor.run(
    code="preprocess.py",
    inputs=[
        ProcessingInput(
            input_name="raw",
            s3_input=ProcessingS3Input(
                s3_uri=f"s3://{bucket}/{prefix}/raw",
                s3_data_type="S3Prefix",
                local_path="/opt/ml/processing/input",
                s3_input_mode="File",
            ),
        )
    ],
    outputs=[output("train"), output("test")],
    logs=False,
)
listed = boto3.client("s3").list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/train/")["Contents"]
print("PREPARED", [each["Key"].rpartition("/")[2] for each in listed])

trainer = ModelTrainer(
    sagemaker_session=session,
    role=role,
    training_image=IMAGE,
    source_code=SourceCode(source_dir=".", entry_script="train.py"),
    compute=Compute(instance_type="ml.m5.xlarge", instance_count=1),
    output_data_config=OutputDataConfig(s3_output_path=f"s3://{bucket}/{prefix}/models"),
    hyperparameters={"epochs": 2, "learning_rate": 0.1},
    base_job_name="team-train",
)
channels = [
    InputData(channel_name="train", data_source=f"s3://{bucket}/{prefix}/train"),
    InputData(channel_name="test", data_source=f"s3://{bucket}/{prefix}/test"),
]
trainer.train(input_data_config=channels, logs=False)
name = trainer._latest_training_job.training_job_name
print("TRAINED", TrainingJob.get(training_job_name=name).training_job_status)

tuner = HyperparameterTuner(
    trainer,
    objective_metric_name="val_loss",
    hyperparameter_ranges={"learning_rate": ContinuousParameter(0.001, 0.2)},
    metric_definitions=[{"Name": "val_loss", "Regex": "val_loss: ([0-9.]+)"}],
    objective_type="Minimize",
    max_jobs=2,
    max_parallel_jobs=2,
    base_tuning_job_name="team-tune",
)
tuner.tune(inputs=channels, wait=True)
job = HyperParameterTuningJob.get(
    hyper_parameter_tuning_job_name=tuner.latest_tuning_job.hyper_parameter_tuning_job_name
)
print("TUNED", job.hyper_parameter_tuning_job_status, job.training_job_status_counters.completed)
