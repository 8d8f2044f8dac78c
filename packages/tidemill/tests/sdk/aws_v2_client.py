"""Runs AWS's SDK v2 against the recording service; started by `test_request_shapes` in an environment that has it.

Reads cases as JSON from standard input: name, constructor arguments, inputs. Inputs may be
``{"TrainingInput": [uri, {keywords}]}``.
"""

import json
import sys

import boto3
import jsonschema
import sagemaker
from sagemaker.inputs import TrainingInput
from sagemaker.instance_group import InstanceGroup
from sagemaker.tensorflow import TensorFlow, TrainingCompilerConfig


def channel(value):
    if isinstance(value, dict) and "TrainingInput" in value:
        uri, keywords = value["TrainingInput"]
        return TrainingInput(uri, **keywords)
    return value


def main():
    # The SDK validates its configuration file at each of some 20 look-ups per job, which takes nearly all of its time.
    jsonschema.validate = lambda *_, **__: None
    session = sagemaker.Session(boto3.Session(region_name="us-west-2"), default_bucket="bucket")
    for case in json.load(sys.stdin):
        arguments = dict(case["arguments"])
        if arguments.pop("compiler", False):
            arguments["compiler_config"] = TrainingCompilerConfig()
        if groups := arguments.pop("instance_groups", None):
            arguments["instance_groups"] = [InstanceGroup(*group) for group in groups]
        inputs = case["inputs"]
        if isinstance(inputs, dict) and "TrainingInput" not in inputs:
            inputs = {name: channel(value) for name, value in inputs.items()}
        else:
            inputs = channel(inputs)
        TensorFlow(sagemaker_session=session, **arguments).fit(inputs, wait=False, job_name=case["name"])


if __name__ == "__main__":
    main()
