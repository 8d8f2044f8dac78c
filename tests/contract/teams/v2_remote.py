"""Functions that run as training jobs with version 2 of AWS's SDK: results, exceptions, files, several jobs."""

import os

import boto3
import sagemaker
from sagemaker.remote_function import RemoteExecutor, remote

IMAGE = "763104351884.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py311"
BUCKET = "team-results-v2"
session = sagemaker.Session()
common = {
    "instance_type": "ml.m5.large",
    "image_uri": IMAGE,
    "role": sagemaker.get_execution_role(session),
    "sagemaker_session": session,
}


@remote(**common, include_local_workdir=True, environment_variables={"TEAM": "tides"})
def where(rows, *, factor=2):
    import inference  # a module of this directory

    return {
        "rows": [each * factor for each in rows],
        "team": os.environ["TEAM"],
        "module": hasattr(inference, "input_handler"),
        "job": os.environ["TRAINING_JOB_NAME"][:5],
    }


def root(number):
    if number < 0:
        raise ValueError(f"{number} has no root")
    return number**0.5


print("RETURNED", where([1, 2]))
# Results and exceptions in a bucket whose name says nothing to the job's role.
boto3.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
with RemoteExecutor(max_parallel_jobs=2, s3_root_uri=f"s3://{BUCKET}/functions", **common) as executor:
    futures = [executor.submit(root, number) for number in (4, -4)]
    print("MAPPED", futures[0].result(), futures[0].done())
    try:
        futures[1].result()
    except ValueError as error:
        print("RAISED", error)
