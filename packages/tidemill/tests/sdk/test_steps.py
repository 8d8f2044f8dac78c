"""Steps of pipelines, in the forms of older notebooks: what they write, keep and refuse. No pipeline is executed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemill.sdk import (
    ContinuousParameter,
    HyperparameterTuner,
    Model,
    ProcessingInput,
    ProcessingOutput,
    ScriptProcessor,
    Session,
    TensorFlow,
    TensorFlowProcessor,
    Transformer,
)
from tidemill.sdk.debugger import Rule, rule_configs
from tidemill.sdk.expressions import JsonGet, PropertyFile
from tidemill.sdk.inputs import CreateModelInput, TransformInput
from tidemill.sdk.workflow.model_step import CreateModelStep, ModelStep, RegisterModel
from tidemill.sdk.workflow.options import (
    CacheConfig,
    SageMakerJobExceptionTypeEnum,
    SageMakerJobStepRetryPolicy,
    StepExceptionTypeEnum,
    StepRetryPolicy,
)
from tidemill.sdk.workflow.pipeline import Pipeline
from tidemill.sdk.workflow.pipeline_session import PipelineSession
from tidemill.sdk.workflow.steps import ProcessingStep, TransformStep, TuningStep

BUCKET = "sagemaker-us-west-2-000000000000"
IMAGE = "tensorflow-training:2.21.0-cpu-py311"
KINDS: dict[str, Any] = {"content_types": ["text/csv"], "response_types": ["text/csv"]}
METRIC = {"Name": "loss", "Regex": "loss: (.*)"}
OF_JOBS = SageMakerJobStepRetryPolicy([SageMakerJobExceptionTypeEnum.INTERNAL_ERROR], max_attempts=2)
OF_ALL = StepRetryPolicy([StepExceptionTypeEnum.THROTTLING], max_attempts=2)


@pytest.fixture
def pipelines(session: Session) -> Iterator[PipelineSession]:
    made = PipelineSession(session.boto_session)
    yield made
    for client in made._clients.values():
        client.close()


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "evaluate.py"
    path.write_text("import sys\nprint('evaluated', *sys.argv[1:])\n")
    return str(path)


@pytest.fixture
def model(pipelines: PipelineSession) -> Model:
    return Model(f"s3://{BUCKET}/model.tar.gz", "role", IMAGE, sagemaker_session=pipelines)


def written(*steps: Any, session: Session) -> dict[str, dict[str, Any]]:
    """Return the steps of a definition, by name."""
    definition = Pipeline("tides", steps=list(steps), sagemaker_session=session).definition()
    return {each["Name"]: each for each in json.loads(definition)["Steps"]}


def test_a_job_writes_where_the_arguments_of_its_step_said(pipelines: PipelineSession, script: str) -> None:
    outputs = [ProcessingOutput("/opt/ml/processing/report", output_name="report")]
    processor = ScriptProcessor("role", IMAGE, base_job_name="evaluate", sagemaker_session=pipelines)
    step = ProcessingStep("Evaluate", processor.run(script, outputs=outputs))
    place = step.arguments["ProcessingOutputConfig"]["Outputs"][0]["S3Output"]["S3Uri"]
    assert place.startswith(f"s3://{BUCKET}/evaluate-20")
    assert place.endswith("/output/report")
    assert step.arguments["ProcessingOutputConfig"]["Outputs"][0]["S3Output"]["S3Uri"] == place
    other = ProcessingStep("Other", processor.run(script, outputs=[ProcessingOutput("/opt/ml/processing/report")]))
    transformer = Transformer("digits", base_transform_job_name="score", sagemaker_session=pipelines)
    score = TransformStep("Score", transformer=transformer, inputs=TransformInput("s3://rows/all"))
    scored = score.arguments["TransformOutput"]["S3OutputPath"]
    assert scored.startswith(f"s3://{BUCKET}/")
    found = written(step, other, score, session=pipelines)
    (output,) = found["Evaluate"]["Arguments"]["ProcessingOutputConfig"]["Outputs"]
    assert output["S3Output"]["S3Uri"] == place
    assert found["Score"]["Arguments"]["TransformOutput"]["S3OutputPath"] == scored
    (output,) = found["Other"]["Arguments"]["ProcessingOutputConfig"]["Outputs"]
    assert "Std:Join" in output["S3Output"]["S3Uri"]


def test_steps_of_models_refuse_what_they_cannot_honor(model: Model) -> None:
    with pytest.raises(TypeError, match=r"ModelStep\(\) got an argument 'cache_config'"):
        ModelStep("Make", model.create("ml.m5.large"), depends_on=["Train"], cache_config=CacheConfig(True))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="did you mean 'display_name'"):
        ModelStep("Make", model.create("ml.m5.large"), displayname="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"CreateModelStep\(\) got an argument 'cache_config'"):
        CreateModelStep("Make", model.create(), cache_config=CacheConfig(True))  # type: ignore[call-arg]
    by_step: Any = {"create_model_retry_policies": [OF_JOBS]}
    for policies in ([OF_JOBS], by_step):
        with pytest.raises(ValueError, match="creates no job; give it a StepRetryPolicy"):
            ModelStep("Make", model.create(), retry_policies=policies)
    with pytest.raises(ValueError, match="retry_policies has 'create'; expected create_model_retry_policies"):
        ModelStep("Make", model.create(), retry_policies={"create": [OF_ALL]})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="RegisterModel 'Register' got 'whatever'"):
        RegisterModel("Register", **KINDS, model=model, whatever=1)


def test_a_registration_has_its_names_and_its_framework(model: Model, pipelines: PipelineSession, script: str) -> None:
    shown: dict[str, Any] = {"display_name": "Register it", "description": "by the year", "compile_model_family": None}
    framework = {"framework": "TENSORFLOW", "framework_version": "2.19"}
    of_model = RegisterModel("Model", **KINDS, model=model, **shown, **framework)
    estimator = TensorFlow(script, "role", sagemaker_session=pipelines)
    of_estimator = RegisterModel(
        "Estimator", **KINDS, estimator=estimator, model_data="s3://models/a.tar.gz", **shown, **framework
    )
    newer = ModelStep("Newer", model.register(**KINDS, **framework), ["Model-RegisterModel"], [OF_ALL], "Shown")
    older = CreateModelStep("Older", model=model, inputs=CreateModelInput("ml.m5.large"))
    older.add_retry_policy(OF_ALL)
    found = written(of_model, of_estimator, newer, older, session=pipelines)
    for name in ("Model-RegisterModel", "Estimator-RegisterModel"):
        assert (found[name]["DisplayName"], found[name]["Description"]) == ("Register it", "by the year")
        assert found[name]["Arguments"]["ModelPackageDescription"] == "by the year"
    for name in ("Model-RegisterModel", "Estimator-RegisterModel", "Newer-RegisterModel"):
        (container,) = found[name]["Arguments"]["InferenceSpecification"]["Containers"]
        assert (container["Framework"], container["FrameworkVersion"]) == ("TENSORFLOW", "2.19")
    assert found["Newer-RegisterModel"]["DependsOn"] == ["Model-RegisterModel"]
    assert found["Newer-RegisterModel"]["DisplayName"] == "Shown"
    assert found["Older"]["RetryPolicies"] == [OF_ALL.to_request()]


def test_a_value_of_a_file_is_named_by_its_step(pipelines: PipelineSession, script: str) -> None:
    report = PropertyFile("Report", "report", "report.json")
    processor = ScriptProcessor("role", IMAGE, sagemaker_session=pipelines)
    step = ProcessingStep("Evaluate", processor.run(script), property_files=[report])
    older, newer = JsonGet(step, report, "a.b"), JsonGet("Evaluate", report, "a.b")
    assert older.expr == newer.expr
    assert older.referenced_steps == [step]


def test_a_step_of_a_processor_runs_the_code_of_its_run_arguments(
    aws: Any, session: Session, script: str, tmp_path: Path
) -> None:
    plain = ScriptProcessor("role", IMAGE, sagemaker_session=session).get_run_args(script, arguments=["--all"])
    assert (plain.code, plain.arguments) == (script, ["--all"])
    processor = TensorFlowProcessor("2.21", "role", command=[sys.executable], sagemaker_session=session)
    rows = ProcessingInput("s3://rows/all", "/opt/ml/processing/input/rows")
    given = processor.get_run_args("evaluate.py", str(tmp_path), inputs=[rows], arguments=["--all"])
    step = ProcessingStep("Evaluate", None, processor, None, None, given.inputs, None, given.arguments, given.code)
    request = step.arguments
    places = {each["S3Input"]["LocalPath"]: each["S3Input"]["S3Uri"] for each in request["ProcessingInputs"]}
    assert places["/opt/ml/processing/input/rows"] == "s3://rows/all"
    job = tmp_path / "job"
    for local, uri in places.items():
        if uri != "s3://rows/all":
            bucket, _, key = uri.removeprefix("s3://").partition("/")
            target = job / Path(local).relative_to("/opt/ml/processing") / Path(key).name
            target.parent.mkdir(parents=True)
            target.write_bytes(aws.objects[bucket, key])
    *shell, runner = request["AppSpecification"]["ContainerEntrypoint"]
    command = [*shell, str(job / Path(runner).relative_to("/opt/ml/processing")), "--all"]
    variables = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=variables)
    assert ended.stdout == "evaluated --all\n"


def test_one_estimator_of_a_tuner_may_have_a_name(pipelines: PipelineSession, script: str) -> None:
    estimator = TensorFlow(script, "role", metric_definitions=[METRIC], sagemaker_session=pipelines)
    tuner = HyperparameterTuner(
        *(estimator, "loss", {"rate": ContinuousParameter(0.1, 1.0)}, None, "Random", "Minimize", 3, 1, None, None),
        *(None, None, None, None, "Off", "only", 7),
    )
    request = TuningStep("Tune", tuner.fit({"only": "s3://rows/train"})).arguments
    (definition,) = request["TrainingJobDefinitions"]
    assert definition["DefinitionName"] == "only"
    assert request["HyperParameterTuningJobConfig"]["RandomSeed"] == 7


def test_what_rules_would_do_is_accepted_as_the_rules_are() -> None:
    actions = rule_configs.ActionList(rule_configs.StopTraining(), rule_configs.Email("a@example.com"))
    rule = Rule.sagemaker(rule_configs.loss_not_decreasing(), actions=actions)
    assert rule.to_debugger_rule_config_dict()["RuleConfigurationName"] == "LossNotDecreasing"
