"""AWS's own SageMaker SDK, version 2, unmodified: a pipeline is written, upserted, executed, retried and deleted."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from forked_sdk import ForkedSdk
from tidemill.testing import Service

IMAGE = "000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py311"

CLIENT = """
    import sys
    from sagemaker.inputs import TrainingInput
    from sagemaker.lineage.visualizer import LineageTableVisualizer
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
    visualizer = LineageTableVisualizer(session)
    tables = [visualizer.show(pipeline_execution_step=step) for step in first.list_steps()]
    print("LINEAGE", [table if table is None else len(table) for table in tables])
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
SERVE = """
    import sys
    from sagemaker.inputs import TrainingInput
    from sagemaker.s3 import S3Downloader
    from sagemaker.tensorflow import TensorFlow, TensorFlowModel, TensorFlowPredictor
    from sagemaker.transformer import Transformer
    from sagemaker.tuner import HyperparameterTuner, IntegerParameter
    from sagemaker.workflow.endpoint_step import EndpointConfigStep, EndpointStep
    from sagemaker.workflow.execution_variables import ExecutionVariables
    from sagemaker.workflow.functions import Join
    from sagemaker.workflow.model_step import ModelStep
    from sagemaker.workflow.parameters import ParameterBoolean, ParameterFloat, ParameterInteger, ParameterString
    from sagemaker.workflow.pipeline import Pipeline
    from sagemaker.workflow.pipeline_context import PipelineSession
    from sagemaker.workflow.retry import StepExceptionTypeEnum, StepRetryPolicy
    from sagemaker.workflow.steps import CacheConfig, TransformStep, TuningStep

    IMAGE = sys.argv[1]
    ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
    session = PipelineSession()
    bucket = session.default_bucket()
    parameters = [
        ParameterInteger("Trials", 2),
        ParameterFloat("Offset", 0.5),
        ParameterBoolean("Loud", default_value=False),
        ParameterString("Rows", f"s3://{bucket}/rows/rows.csv"),
    ]
    trials, offset, loud, rows = parameters
    base = session.upload_data(sys.argv[2], bucket, "base")
    session.upload_string_as_file_body("1,2\\n3,4", bucket, "rows/rows.csv")
    common = {"role": ROLE, "sagemaker_session": session}
    metrics = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]
    estimator = TensorFlow(
        entry_point="trial.py", image_uri=IMAGE, instance_count=1, instance_type="ml.m5.large", model_dir=False,
        hyperparameters={"offset": offset, "loud": loud}, output_path=f"s3://{bucket}/trials", **common
    )
    tuner = HyperparameterTuner(
        estimator, "loss", {"units": IntegerParameter(1, 9)}, metrics, strategy="Random", objective_type="Minimize",
        max_jobs=trials, max_parallel_jobs=2, random_seed=3,
    )
    tune = TuningStep(
        "Tune",
        step_args=tuner.fit({"rows": TrainingInput(rows), "base": TrainingInput(base)}),
        cache_config=CacheConfig(True, "PT1H"),
        retry_policies=[StepRetryPolicy([StepExceptionTypeEnum.THROTTLING], max_attempts=2)],
    )
    data = tune.get_top_model_s3_uri(top_k=0, s3_bucket=bucket, prefix="trials")
    served = IMAGE.replace("training", "inference")
    best = TensorFlowModel(data, image_uri=served, **common)
    create = ModelStep("Best", step_args=best.create(instance_type="ml.m5.large"))
    scored = Join(on="/", values=["s3:/", bucket, "scored", ExecutionVariables.PIPELINE_EXECUTION_ID])
    name = create.properties.ModelName
    transformer = Transformer(name, 1, "ml.m5.large", output_path=scored, sagemaker_session=session)
    score = TransformStep("Score", step_args=transformer.transform(rows, content_type="text/csv"))
    config = EndpointConfigStep(
        "Config",
        step_args=session.create_endpoint_config(
            name="tuned", model_name=name, initial_instance_count=1, instance_type="ml.m5.large"
        ),
    )
    deploy = EndpointStep(
        "Deploy",
        step_args=session.create_endpoint("tuned", config.properties.EndpointConfigName),
        depends_on=[score],
    )
    steps = [tune, create, score, config, deploy]
    pipeline = Pipeline("tuned", parameters=parameters, steps=steps, sagemaker_session=session)
    pipeline.create(ROLE)
    execution = pipeline.start({"Offset": 2.5, "Loud": True})
    try:
        execution.wait(delay=1, max_attempts=300)
    except Exception:
        print(execution.describe(), execution.list_steps(), file=sys.stderr)
    found = {step["StepName"]: step for step in execution.list_steps()}
    print("STEPS", sorted((name, step["StepStatus"]) for name, step in found.items()))
    client = session.sagemaker_client
    tuning = client.describe_hyper_parameter_tuning_job(
        HyperParameterTuningJobName=found["Tune"]["Metadata"]["TuningJob"]["Arn"].rpartition("/")[2]
    )
    counters = tuning["TrainingJobStatusCounters"]
    winner = tuning["BestTrainingJob"]["TrainingJobName"]
    model = client.describe_model(ModelName=found["Best-CreateModel"]["Metadata"]["Model"]["Arn"].rpartition("/")[2])
    print("BEST", counters["Completed"], winner in model["PrimaryContainer"]["ModelDataUrl"])
    units = int(tuning["BestTrainingJob"]["TunedHyperParameters"]["units"])
    execution_id = execution.arn.rpartition("/")[2]
    lines = S3Downloader.read_file(f"s3://{bucket}/scored/{execution_id}/rows.csv.out", sagemaker_session=session)
    print("SCORED", [float(line) - units for line in lines.split()])
    predictor = TensorFlowPredictor("tuned", sagemaker_session=session)
    reply = session.sagemaker_runtime_client.invoke_endpoint(EndpointName="tuned", ContentType="text/csv", Body=b"5,6")
    print("SERVED", float(reply["Body"].read()) - units)
    predictor.delete_endpoint()
"""
TRIAL = """
    import json, os, pathlib, tarfile

    values = json.loads(os.environ["SM_HPS"])
    assert (values["offset"], values["loud"]) == (2.5, True), values
    assert pathlib.Path(os.environ["SM_CHANNEL_ROWS"], "rows.csv").exists()
    code = pathlib.Path(os.environ["SM_MODEL_DIR"], "code")
    code.mkdir()
    with tarfile.open(pathlib.Path(os.environ["SM_CHANNEL_BASE"], "model.tar.gz")) as model:
        model.extractall(code.parent, filter="data")
    handler = (
        "def handler(data, context):",
        "    rows = [[float(each) for each in line.split(',')] for line in data.read().decode().split()]",
        f"    return ' '.join(str(sum(row) + {values['units']}) for row in rows), 'text/csv'",
    )
    code.joinpath("inference.py").write_text(chr(10).join(handler))
    print(f"loss={10 - values['units']}.5", flush=True)
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


Run = Callable[..., str]


@pytest.fixture
def run(tidemill_service: Service, aws_sdk: ForkedSdk, tmp_path: Path, saved_model: Path) -> Run:
    """Return a function that runs ``client``, with its other scripts beside it, and returns its output."""

    def run(**scripts: str) -> str:
        for name, text in scripts.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        variables = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **tidemill_service.environment}
        return aws_sdk.run(Path("client.py"), IMAGE, saved_model, directory=tmp_path, variables=variables).stdout

    return run


def test_a_pipeline_of_the_sdk_runs_unmodified(run: Run) -> None:
    shown = run(client=CLIENT, prepare=PREPARE, train=TRAIN)
    for line in (
        "VERSION 1 Active",
        "FIRST {'Prepare': 'Succeeded', 'Train': 'Succeeded', 'Check': 'Succeeded', 'Model-CreateModel': 'Succeeded',"
        " 'Register-RegisterModel': 'Succeeded'}",
        "LINEAGE [None, None, None, 0, 0]",
        "PARAMETERS {'Kind': 'large', 'Rows': 11}",
        "LISTED 1",
        "CACHED ['Prepare', 'Train']",
        "WAITED WaiterError",
        "FEW Failed The step 'TooFew' failed: only 3 rows",
        "CHOSEN Succeeded ['Check', 'Prepare', 'Register-RegisterModel', 'Train']",
    ):
        assert line in shown, shown


def test_a_pipeline_tunes_transforms_with_the_best_model_and_deploys_it(run: Run) -> None:
    shown = run(client=SERVE, trial=TRIAL)
    assert [line for line in shown.splitlines() if line.partition(" ")[0].isupper()] == [
        "STEPS [('Best-CreateModel', 'Succeeded'), ('Config', 'Succeeded'), ('Deploy', 'Succeeded'),"
        " ('Score', 'Succeeded'), ('Tune', 'Succeeded')]",
        "BEST 2 True",
        "SCORED [3.0, 7.0]",
        "SERVED 11.0",
    ]
