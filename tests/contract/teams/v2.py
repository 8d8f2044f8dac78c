"""Prepare, train, tune, register, deploy and transform with AWS's SDK, in an experiment; one step after the other."""

import io

import boto3
import numpy as np
import sagemaker
from sagemaker.analytics import HyperparameterTuningJobAnalytics
from sagemaker.experiments.run import Run
from sagemaker.inputs import TrainingInput
from sagemaker.processing import ProcessingInput, ProcessingOutput
from sagemaker.s3 import S3Downloader
from sagemaker.sklearn.processing import SKLearnProcessor
from sagemaker.tensorflow import TensorFlow
from sagemaker.tuner import ContinuousParameter, HyperparameterTuner, IntegerParameter
from sagemaker.utils import name_from_base

session = sagemaker.Session()
role = sagemaker.get_execution_role(session)
bucket = session.default_bucket()
prefix = name_from_base("team")
print("ROLE", role)

# Data of 13 features, as raw files in S3.
generator = np.random.default_rng(1)
for kind, rows in (("train", 400), ("test", 100)):
    for part in range(2):
        buffer = io.BytesIO()
        np.save(buffer, generator.normal(3, 2, (rows // 2, 4)))
        boto3.client("s3").put_object(Bucket=bucket, Key=f"{prefix}/raw/x_{kind}_{part}.npy", Body=buffer.getvalue())

processor = SKLearnProcessor(
    framework_version="1.2-1",
    role=role,
    instance_type="ml.m5.xlarge",
    instance_count=2,
    base_job_name="team-prepare",
    sagemaker_session=session,
)
with Run(experiment_name=name_from_base("team-experiment"), run_name="first", sagemaker_session=session) as run:
    run.log_parameter("rows", 500)
    processor.run(
        code="preprocess.py",
        inputs=[
            ProcessingInput(
                source=f"s3://{bucket}/{prefix}/raw",
                destination="/opt/ml/processing/input",
                s3_data_distribution_type="ShardedByS3Key",
            )
        ],
        outputs=[
            ProcessingOutput(output_name="train", source="/opt/ml/processing/train"),
            ProcessingOutput(output_name="test", source="/opt/ml/processing/test"),
        ],
        logs=False,
    )
    described = processor.jobs[-1].describe()
    outputs = {each["OutputName"]: each["S3Output"]["S3Uri"] for each in described["ProcessingOutputConfig"]["Outputs"]}
    print("PREPARED", sorted(uri.rpartition("/")[2] for name in outputs for uri in S3Downloader.list(outputs[name])))

    channels = {"train": TrainingInput(outputs["train"]), "test": outputs["test"]}
    common = {
        "entry_point": "train.py",
        "role": role,
        "framework_version": "2.19",
        "py_version": "py312",
        "instance_type": "ml.c5.xlarge",
        "instance_count": 1,
        "model_dir": "/opt/ml/model",
        "sagemaker_session": session,
        "metric_definitions": [{"Name": "val_loss", "Regex": "val_loss: ([0-9.]+)"}],
    }
    estimator = TensorFlow(**common, hyperparameters={"epochs": 3, "learning_rate": 0.1}, base_job_name="team-train")
    estimator.fit(channels, logs=False)
    print("TRAINED", estimator.latest_training_job.describe()["FinalMetricDataList"][0]["MetricName"])
    run.log_metric("tuned", 1.0, step=1)

tuner = HyperparameterTuner(
    TensorFlow(**common, hyperparameters={"batch_size": 50}),
    objective_metric_name="val_loss",
    hyperparameter_ranges={
        "learning_rate": ContinuousParameter(0.001, 0.2, scaling_type="Logarithmic"),
        "epochs": IntegerParameter(1, 4),
    },
    metric_definitions=common["metric_definitions"],
    max_jobs=3,
    max_parallel_jobs=2,
    objective_type="Minimize",
    base_tuning_job_name="team-tune",
)
tuner.fit(channels, wait=True)
frame = HyperparameterTuningJobAnalytics(tuner.latest_tuning_job.name, sagemaker_session=session).dataframe()
best = frame.sort_values("FinalObjectiveValue").iloc[0]["TrainingJobName"]
print("TUNED", len(frame), best == tuner.best_training_job(), set(frame["TrainingJobStatus"]))

group = name_from_base("team-models")
model = tuner.best_estimator().create_model(role=role)
package = model.register(
    content_types=["application/json"],
    response_types=["application/json"],
    inference_instances=["ml.m5.xlarge"],
    transform_instances=["ml.m5.xlarge"],
    model_package_group_name=group,
    approval_status="PendingManualApproval",
)
client = session.sagemaker_client
client.update_model_package(ModelPackageArn=package.model_package_arn, ModelApprovalStatus="Approved")
listed = client.list_model_packages(ModelPackageGroupName=group, ModelApprovalStatus="Approved")
print("REGISTERED", [each["ModelPackageVersion"] for each in listed["ModelPackageSummaryList"]])

tuned = {"Name": "TrainingJobName", "Operator": "Contains", "Value": tuner.latest_tuning_job.name}
found = client.search(Resource="TrainingJob", SearchExpression={"Filters": [tuned]})
print("FOUND", len(found["Results"]))

deployed = sagemaker.ModelPackage(role=role, model_package_arn=package.model_package_arn, sagemaker_session=session)
endpoint = name_from_base("team-endpoint")
deployed.deploy(initial_instance_count=1, instance_type="ml.m5.xlarge", endpoint_name=endpoint)
predictor = sagemaker.tensorflow.TensorFlowPredictor(endpoint, sagemaker_session=session)
print("PREDICTED", len(predictor.predict({"instances": [[0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]]})["predictions"]))
predictor.delete_endpoint()

transformer = tuner.best_estimator().transformer(
    instance_count=1,
    instance_type="ml.m5.xlarge",
    output_path=f"s3://{bucket}/{prefix}/scored",
    strategy="SingleRecord",
    assemble_with="Line",
)
session.upload_string_as_file_body("[[1, 1, 1, 1]]\n[[2, 2, 2, 2]]", bucket, f"{prefix}/score/rows.json")
transformer.transform(
    f"s3://{bucket}/{prefix}/score", content_type="application/json", split_type="Line", wait=True, logs=False
)
print("SCORED", [uri.rpartition("/")[2] for uri in S3Downloader.list(f"s3://{bucket}/{prefix}/scored")])
