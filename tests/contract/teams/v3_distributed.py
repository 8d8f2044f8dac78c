"""Training on several processes with version 3 of AWS's SDK: its MPI driver, several instances, and how each fails."""

import re

import boto3
from sagemaker.core.helper.session_helper import Session, get_execution_role
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, SourceCode
from sagemaker.train.distributed import MPI, Torchrun

IMAGE = "763104351884.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py311"
GROUP = "/aws/sagemaker/TrainingJobs"
session = Session()
role = get_execution_role(session)
logs = boto3.client("logs")


def train(name, instances, distributed=None, fail_at=-1):
    """Return the lines of all ranks, or the reason of the failure."""
    trainer = ModelTrainer(
        sagemaker_session=session,
        role=role,
        training_image=IMAGE,
        source_code=SourceCode(source_dir=".", entry_script="ranks.py"),
        compute=Compute(instance_type="ml.m5.xlarge", instance_count=instances),
        hyperparameters={"fail_at": fail_at, "name": "a team"},
        distributed=distributed,
        base_job_name=name,
    )
    try:
        trainer.train(logs=False)
    except Exception as error:
        reason = str(error)
        return re.search(r"(?:rank \d on algo-\d: |)ValueError: [^\n]*|distributed=\S+ torchrun belongs to", reason)[0]
    job = trainer._latest_training_job.training_job_name
    streams = logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{job}/")["logStreams"]
    pages = [logs.get_log_events(logGroupName=GROUP, logStreamName=each["logStreamName"]) for each in streams]
    lines = [event["message"] for page in pages for event in page["events"]]
    return sorted(match[1] for line in lines if (match := re.search(r"(?:^|>:)RANK (.*) for a team$", line)))


print("ALONE", train("team-alone", 1, MPI(process_count_per_node=2)))
print("SEVERAL", train("team-several", 2, MPI(process_count_per_node=2, mpi_additional_options=["-x", "COLOR=red"])))
print("PLAIN", train("team-plain", 2))
print("FAILED", train("team-failed", 2, MPI(process_count_per_node=1), fail_at=1))
print("FAILED", train("team-wrong", 1, fail_at=0))
print("REFUSED", train("team-refused", 1, Torchrun()))
