"""Training on several processes with version 2 of AWS's SDK, on two instances."""

import re

import boto3
import sagemaker
from sagemaker.tensorflow import TensorFlow

GROUP = "/aws/sagemaker/TrainingJobs"
session = sagemaker.Session()
estimator = TensorFlow(
    entry_point="ranks.py",
    role=sagemaker.get_execution_role(session),
    framework_version="2.19",
    py_version="py312",
    instance_type="ml.c5.xlarge",
    instance_count=2,
    distribution={"mpi": {"enabled": True, "processes_per_host": 2}},
    hyperparameters={"name": "a team"},
    model_dir=False,
    sagemaker_session=session,
)
estimator.fit(logs=False)
logs = boto3.client("logs")
job = estimator.latest_training_job.name
streams = logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{job}/")["logStreams"]
pages = [logs.get_log_events(logGroupName=GROUP, logStreamName=each["logStreamName"]) for each in streams]
lines = [event["message"] for page in pages for event in page["events"]]
print("SEVERAL", sorted(match[1] for line in lines if (match := re.search(r">:RANK (.*) for a team$", line))))
