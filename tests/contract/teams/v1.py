"""The same team's work with version 1 of AWS's SDK: prepare, train, tune, deploy, transform."""

import io

import boto3
import numpy as np
import sagemaker
from sagemaker.processing import ProcessingInput, ProcessingOutput
from sagemaker.sklearn.processing import SKLearnProcessor
from sagemaker.tensorflow import TensorFlow
from sagemaker.tuner import ContinuousParameter, HyperparameterTuner

IMAGE = "763104351884.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py311"
session = sagemaker.Session()
role = sagemaker.get_execution_role(session)
bucket = session.default_bucket()
prefix = "team-v1"
print("ROLE", role)

for kind, rows in (("train", 400), ("test", 100)):
    buffer = io.BytesIO()
    np.save(buffer, np.random.RandomState(1).normal(3, 2, (rows, 4)))
    boto3.client("s3").put_object(Bucket=bucket, Key=f"{prefix}/raw/x_{kind}_0.npy", Body=buffer.getvalue())

processor = SKLearnProcessor(
    framework_version="0.20.0",
    role=role,
    instance_type="ml.m5.xlarge",
    instance_count=1,
    base_job_name="team-prepare",
    sagemaker_session=session,
)
processor.run(
    code="preprocess.py",
    inputs=[
        ProcessingInput(source=f"s3://{bucket}/{prefix}/raw", destination="/opt/ml/processing/input", input_name="raw")
    ],
    outputs=[
        ProcessingOutput(output_name="train", source="/opt/ml/processing/train"),
        ProcessingOutput(output_name="test", source="/opt/ml/processing/test"),
    ],
    logs=False,
)
described = processor.jobs[-1].describe()
outputs = {each["OutputName"]: each["S3Output"]["S3Uri"] for each in described["ProcessingOutputConfig"]["Outputs"]}
print("PREPARED", sorted(outputs))

estimator = TensorFlow(
    entry_point="train.py",
    role=role,
    train_instance_count=1,
    train_instance_type="ml.m5.xlarge",
    image_name=IMAGE,
    script_mode=True,
    model_dir="/opt/ml/model",
    hyperparameters={"epochs": 2, "learning_rate": 0.1},
    metric_definitions=[{"Name": "val_loss", "Regex": "val_loss: ([0-9.]+)"}],
    sagemaker_session=session,
)
channels = {name: sagemaker.s3_input(uri) for name, uri in outputs.items()}
estimator.fit(channels, logs=False)
print("TRAINED", estimator.latest_training_job.describe()["TrainingJobStatus"])

tuner = HyperparameterTuner(
    estimator,
    "val_loss",
    {"learning_rate": ContinuousParameter(0.001, 0.2)},
    metric_definitions=[{"Name": "val_loss", "Regex": "val_loss: ([0-9.]+)"}],
    objective_type="Minimize",
    max_jobs=2,
    max_parallel_jobs=2,
)
tuner.fit(channels)
tuner.wait()
print("TUNED", tuner.describe()["HyperParameterTuningJobStatus"], tuner.best_training_job() != "")

predictor = estimator.deploy(initial_instance_count=1, instance_type="ml.m5.xlarge")
print("PREDICTED", len(predictor.predict({"instances": [[0.0, 0.0, 0.0, 0.0]]})["predictions"]))
predictor.delete_endpoint()

session.upload_string_as_file_body("[[1, 1, 1, 1]]", bucket, f"{prefix}/score/rows.json")
transformer = estimator.transformer(1, "ml.m5.xlarge", output_path=f"s3://{bucket}/{prefix}/scored")
transformer.transform(f"s3://{bucket}/{prefix}/score", content_type="application/json")
transformer.wait()
listed = boto3.client("s3").list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/scored/")["Contents"]
print("SCORED", [each["Key"].rpartition("/")[2] for each in listed])
