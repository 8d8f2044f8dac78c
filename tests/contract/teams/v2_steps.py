"""Functions as steps of a pipeline with version 2 of AWS's SDK: what one returns is an argument of the next."""

import sagemaker
from sagemaker.workflow.function_step import step
from sagemaker.workflow.parameters import ParameterInteger
from sagemaker.workflow.pipeline import Pipeline

IMAGE = "763104351884.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py311"
session = sagemaker.Session()
role = sagemaker.get_execution_role(session)
common = {"instance_type": "ml.m5.large", "image_uri": IMAGE, "role": role}


@step(name="Double", **common)
def double(number):
    return {"value": number * 2}


@step(name="Report", **common)
def report(found):
    return f"found {found['value']}"


number = ParameterInteger(name="Number", default_value=3)
pipeline = Pipeline(name="functions-v2", parameters=[number], steps=[report(double(number))], sagemaker_session=session)
pipeline.upsert(role_arn=role)
execution = pipeline.start({"Number": 5})
execution.wait(delay=1, max_attempts=600)
statuses = sorted((step["StepName"], step["StepStatus"]) for step in execution.list_steps())
print("EXECUTED", execution.describe()["PipelineExecutionStatus"], statuses)
print("RESULT", execution.result("Report"))
