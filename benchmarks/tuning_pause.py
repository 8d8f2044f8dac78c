"""Measure the time from the end of a training of a tuning job to the creation of the next one.

    python benchmarks/tuning_pause.py [--trainings 15]

Both times are those that the API shows. One training runs at a time; the scripts do nothing but log the objective. In
the second half, Bayesian tuning asks its model for each training.
"""

import argparse
import io
import itertools
import json
import statistics
import tarfile
import time
from typing import Any

from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
SCRIPT = b"import json, os; print('score=', json.loads(os.environ['SM_HPS'])['x'], ';', sep='')"


def upload_code(service: Service) -> str:
    """Upload the script, and return its URI."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        member = tarfile.TarInfo("train.py")
        member.size = len(SCRIPT)
        tar.addfile(member, io.BytesIO(SCRIPT))
    client = service.boto3_session().client("s3")
    client.put_object(Bucket=BUCKET, Key="code/sourcedir.tar.gz", Body=buffer.getvalue())
    return f"s3://{BUCKET}/code/sourcedir.tar.gz"


def tune(client: Any, code: str, *, strategy: str, trainings: int) -> list[float]:
    """Run a tuning job, and return the pauses between its trainings in seconds."""
    name = f"{strategy.lower()}-pauses"
    client.create_hyper_parameter_tuning_job(
        HyperParameterTuningJobName=name,
        HyperParameterTuningJobConfig={
            "Strategy": strategy,
            "HyperParameterTuningJobObjective": {"Type": "Maximize", "MetricName": "score"},
            "ResourceLimits": {"MaxNumberOfTrainingJobs": trainings, "MaxParallelTrainingJobs": 1},
            "ParameterRanges": {"ContinuousParameterRanges": [{"Name": "x", "MinValue": "0", "MaxValue": "1"}]},
        },
        TrainingJobDefinition={
            "StaticHyperParameters": {
                "sagemaker_program": json.dumps("train.py"),
                "sagemaker_submit_directory": json.dumps(code),
            },
            "AlgorithmSpecification": {
                "TrainingImage": "tensorflow-training:2.21.0-cpu-py311",
                "TrainingInputMode": "File",
                "MetricDefinitions": [{"Name": "score", "Regex": "score=(.*?);"}],
            },
            "RoleArn": "arn:aws:iam::000000000000:role/SageMakerRole",
            "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out"},
            "ResourceConfig": {"InstanceType": "local", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        },
    )
    while client.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)[
        "HyperParameterTuningJobStatus"
    ] not in ("Completed", "Failed", "Stopped"):
        time.sleep(0.5)
    listed = client.list_training_jobs_for_hyper_parameter_tuning_job(HyperParameterTuningJobName=name, MaxResults=100)
    jobs = [
        client.describe_training_job(TrainingJobName=each["TrainingJobName"]) for each in listed["TrainingJobSummaries"]
    ]
    return [
        (later["CreationTime"] - earlier["TrainingEndTime"]).total_seconds()
        for earlier, later in itertools.pairwise(jobs)
    ]


def main() -> None:
    """Print the pauses of both strategies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainings", type=int, default=15)
    options = parser.parse_args()
    with Service(settings={"max_instances": 2}) as service:
        client, code = service.boto3_session().client("sagemaker"), upload_code(service)
        for strategy in ("Random", "Bayesian"):
            pauses = tune(client, code, strategy=strategy, trainings=options.trainings)
            print(f"{strategy:10} median {statistics.median(pauses):.3f} s, longest {max(pauses):.3f} s")


if __name__ == "__main__":
    main()
