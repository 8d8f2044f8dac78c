"""AWS's own SageMaker SDK, version 2, unmodified: a pipeline is written, upserted, executed, retried and deleted."""

import subprocess
import textwrap
from pathlib import Path

from tidemill.testing import Service

IMAGE = "000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py311"

CLIENT = """
    import sys
    from sagemaker.inputs import TrainingInput
    from sagemaker.processing import ProcessingOutput, ScriptProcessor
    from sagemaker.tensorflow import TensorFlow, TensorFlowModel
    from sagemaker.workflow.condition_step import ConditionStep
    from sagemaker.workflow.conditions import ConditionGreaterThanOrEqualTo, ConditionIn, ConditionNot, ConditionOr
    from sagemaker.workflow.execution_variables import ExecutionVariables
    from sagemaker.workflow.fail_step import FailStep
    from sagemaker.workflow.functions import Join, JsonGet
    from sagemaker.workflow.model_step import ModelStep
    from sagemaker.workflow.parallelism_config import ParallelismConfiguration
    from sagemaker.workflow.parameters import ParameterInteger, ParameterString
    from sagemaker.workflow.pipeline import Pipeline
    from sagemaker.workflow.pipeline_context import PipelineSession
    from sagemaker.workflow.properties import PropertyFile
    from sagemaker.workflow.retry import SageMakerJobExceptionTypeEnum, SageMakerJobStepRetryPolicy
    from sagemaker.workflow.selective_execution_config import SelectiveExecutionConfig
    from sagemaker.workflow.steps import CacheConfig, ProcessingStep, TrainingStep

    IMAGE = sys.argv[1]
    ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
    session = PipelineSession()
    rows = ParameterInteger("Rows", 10)
    kind = ParameterString("Kind", "small", enum_values=["small", "large"])
    common = {"role": ROLE, "instance_count": 1, "instance_type": "ml.m5.large", "sagemaker_session": session}
    cache = CacheConfig(True, "P30D")

    processor = ScriptProcessor(image_uri=IMAGE, command=["python3"], **common)
    report = PropertyFile("Report", output_name="report", path="report.json")
    prepare = ProcessingStep(
        "Prepare",
        step_args=processor.run(
            code="prepare.py",
            arguments=["--rows", rows.to_string()],
            outputs=[ProcessingOutput(source="/opt/ml/processing/report", output_name="report")],
        ),
        property_files=[report],
        cache_config=cache,
    )
    place = prepare.properties.ProcessingOutputConfig.Outputs["report"].S3Output.S3Uri
    estimator = TensorFlow(
        entry_point="train.py", image_uri=IMAGE, hyperparameters={"rows": rows, "kind": kind}, disable_profiler=True,
        environment={"EXECUTION": ExecutionVariables.PIPELINE_NAME}, model_dir=False, **common
    )
    policy = SageMakerJobStepRetryPolicy([SageMakerJobExceptionTypeEnum.INTERNAL_ERROR], max_attempts=2)
    train = TrainingStep(
        "Train", step_args=estimator.fit({"train": TrainingInput(place)}), cache_config=cache, retry_policies=[policy]
    )
    data = train.properties.ModelArtifacts.S3ModelArtifacts
    model = TensorFlowModel(data, role=ROLE, framework_version="2.19", sagemaker_session=session)
    count = JsonGet(step_name="Prepare", property_file=report, json_path="rows.count")
    check = ConditionStep(
        "Check",
        conditions=[
            ConditionGreaterThanOrEqualTo(count, 5),
            ConditionOr([ConditionNot(ConditionIn(kind, ["small"])), ConditionIn(kind, ["small", "large"])]),
        ],
        if_steps=[
            ModelStep("Model", step_args=model.create(instance_type="ml.m5.large")),
            ModelStep(
                "Register",
                step_args=model.register(
                    content_types=["application/json"], response_types=["application/json"],
                    inference_instances=["ml.m5.large"], model_package_group_name="pipelines",
                ),
            ),
        ],
        else_steps=[FailStep("TooFew", error_message=Join(on=" ", values=["only", count, "rows"]))],
        depends_on=[train],
    )
    pipeline = Pipeline("digits", parameters=[rows, kind], steps=[prepare, train, check], sagemaker_session=session)
    for _ in range(2):
        pipeline.upsert(ROLE, description="digits", tags=[{"Key": "team", "Value": "tides"}])
    print("VERSION", pipeline.latest_pipeline_version_id, pipeline.describe()["PipelineStatus"])

    def statuses(execution):
        return {step["StepName"]: step["StepStatus"] for step in reversed(execution.list_steps())}

    first = pipeline.start({"Kind": "large"}, parallelism_config=ParallelismConfiguration(2))
    first.wait(delay=1)
    print("FIRST", statuses(first))
    print("PARAMETERS", pipeline.build_parameters_from_execution(first.arn, {"Rows": 11}))
    print("LISTED", len(pipeline.list_executions()["PipelineExecutionSummaries"]))

    second = pipeline.start({"Kind": "large"})
    second.wait(delay=1)
    print("CACHED", sorted(step["StepName"] for step in second.list_steps() if "CacheHitResult" in step))

    few = pipeline.start({"Rows": 3})
    try:
        few.wait(delay=1)
    except Exception as error:
        print("WAITED", type(error).__name__)
    print("FEW", few.describe()["PipelineExecutionStatus"], few.describe()["FailureReason"])

    chosen = pipeline.start(
        selective_execution_config=SelectiveExecutionConfig(
            ["Model-CreateModel"], source_pipeline_execution_arn=first.arn
        )
    )
    chosen.wait(delay=1)
    reused = [step["StepName"] for step in chosen.list_steps() if "SelectiveExecutionResult" in step]
    print("CHOSEN", statuses(chosen)["Model-CreateModel"], sorted(reused))
    pipeline.delete()
"""
PREPARE = """
    import argparse, json, pathlib

    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int)
    text = json.dumps({"rows": {"count": parser.parse_args().rows}})
    pathlib.Path("/opt/ml/processing/report/report.json").write_text(text)
"""
TRAIN = """
    import json, os, pathlib

    values = json.loads(os.environ["SM_HPS"])
    found = json.loads(pathlib.Path(os.environ["SM_CHANNEL_TRAIN"], "report.json").read_text())
    assert found["rows"]["count"] == values["rows"], (found, values)
    assert (values["kind"] == "large") == (values["rows"] == 10), values
    assert os.environ["EXECUTION"] == "digits"
    pathlib.Path(os.environ["SM_MODEL_DIR"], "weights").write_text("w")
"""


def test_a_pipeline_of_the_sdk_runs_unmodified(tidemill_service: Service, root: Path, tmp_path: Path) -> None:
    for name, text in (("client", CLIENT), ("prepare", PREPARE), ("train", TRAIN)):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    done = subprocess.run(
        [root / ".venvs/peers/bin/python", "client.py", IMAGE],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **tidemill_service.environment},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (
        "VERSION 1 Active",
        "FIRST {'Prepare': 'Succeeded', 'Train': 'Succeeded', 'Check': 'Succeeded', 'Model-CreateModel': 'Succeeded',"
        " 'Register-RegisterModel': 'Succeeded'}",
        "PARAMETERS {'Kind': 'large', 'Rows': 11}",
        "LISTED 1",
        "CACHED ['Prepare', 'Train']",
        "WAITED WaiterError",
        "FEW Failed The step 'TooFew' failed: only 3 rows",
        "CHOSEN Succeeded ['Check', 'Prepare', 'Register-RegisterModel', 'Train']",
    ):
        assert line in done.stdout, done.stdout + done.stderr
