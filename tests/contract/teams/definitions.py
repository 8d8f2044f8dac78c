"""Print the definition of a pipeline with steps of every type: the same calls for AWS's SDK and for tidemill's own."""

import sys
import warnings

from sagemaker.inputs import CreateModelInput, TrainingInput, TransformInput
from sagemaker.network import NetworkConfig
from sagemaker.processing import ProcessingInput, ProcessingOutput, Processor, ScriptProcessor
from sagemaker.sklearn.processing import SKLearnProcessor
from sagemaker.tensorflow import TensorFlow, TensorFlowModel, TensorFlowProcessor
from sagemaker.transformer import Transformer
from sagemaker.tuner import CategoricalParameter, ContinuousParameter, HyperparameterTuner, IntegerParameter
from sagemaker.workflow.condition_step import ConditionStep
from sagemaker.workflow.condition_step import JsonGet as OlderJsonGet
from sagemaker.workflow.conditions import (
    ConditionEquals,
    ConditionGreaterThan,
    ConditionGreaterThanOrEqualTo,
    ConditionIn,
    ConditionLessThan,
    ConditionLessThanOrEqualTo,
    ConditionNot,
    ConditionOr,
)
from sagemaker.workflow.endpoint_step import EndpointConfigStep, EndpointStep
from sagemaker.workflow.execution_variables import ExecutionVariables
from sagemaker.workflow.fail_step import FailStep
from sagemaker.workflow.functions import Join, JsonGet
from sagemaker.workflow.model_step import ModelStep
from sagemaker.workflow.parameters import ParameterBoolean, ParameterFloat, ParameterInteger, ParameterString
from sagemaker.workflow.pipeline import Pipeline
from sagemaker.workflow.pipeline_context import PipelineSession
from sagemaker.workflow.pipeline_definition_config import PipelineDefinitionConfig
from sagemaker.workflow.pipeline_experiment_config import PipelineExperimentConfig
from sagemaker.workflow.properties import PropertyFile
from sagemaker.workflow.retry import (
    SageMakerJobExceptionTypeEnum,
    SageMakerJobStepRetryPolicy,
    StepExceptionTypeEnum,
    StepRetryPolicy,
)
from sagemaker.workflow.step_collections import RegisterModel
from sagemaker.workflow.steps import (
    CacheConfig,
    CreateModelStep,
    ProcessingStep,
    TrainingStep,
    TransformStep,
    TuningStep,
)

warnings.simplefilter("ignore")
IMAGE = "000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py311"
ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
session = PipelineSession()
rows = ParameterInteger("Rows", 10)
rate = ParameterFloat("Rate", 0.5)
kind = ParameterString("Kind", "small", enum_values=["small", "large"])
data = ParameterString("Data")
machine = ParameterString("Machine", "ml.m5.large")
strict = ParameterBoolean(name="Strict", default_value=False)
common = {"role": ROLE, "instance_count": 1, "instance_type": "ml.m5.large", "sagemaker_session": session}
cache = CacheConfig(True, "P30D")

report = PropertyFile("Report", output_name="report", path="report.json")
prepare = ProcessingStep(
    "Prepare",
    step_args=ScriptProcessor(
        image_uri=IMAGE,
        command=["python3", "-u"],
        role=ROLE,
        instance_count=rows,
        instance_type=machine,
        env={"KIND": kind},
        max_runtime_in_seconds=600,
        volume_size_in_gb=40,
        network_config=NetworkConfig(enable_network_isolation=False, subnets=["s"], security_group_ids=["g"]),
        tags=[{"Key": "team", "Value": "tides"}],
        sagemaker_session=session,
    ).run(
        code="preprocess.py",
        arguments=["--rows", rows.to_string(), "--rate", Join(on="", values=[rate])],
        inputs=[ProcessingInput(source=data, destination="/opt/ml/processing/input", input_name="data")],
        outputs=[
            ProcessingOutput(source="/opt/ml/processing/report", output_name="report"),
            ProcessingOutput(
                source="/opt/ml/processing/rows",
                destination=Join(on="/", values=["s3:/", "rows", ExecutionVariables.PIPELINE_EXECUTION_ID]),
            ),
        ],
    ),
    property_files=[report],
    cache_config=cache,
    display_name="Prepare the rows",
    description="rows",
)
place = prepare.properties.ProcessingOutputConfig.Outputs["report"].S3Output.S3Uri
older_processor = SKLearnProcessor(framework_version="1.2-1", **common)
given = older_processor.get_run_args(
    "preprocess.py",
    inputs=[ProcessingInput(source=place, destination="/opt/ml/processing/input")],
    outputs=[ProcessingOutput(source="/opt/ml/processing/train", destination="s3://rows/train")],
    arguments=["--all"],
)
older = ProcessingStep(
    "Older",
    processor=older_processor,
    code=given.code,
    inputs=given.inputs,
    outputs=given.outputs,
    job_arguments=given.arguments,
)
command = ProcessingStep(
    "Command", step_args=Processor(image_uri=IMAGE, entrypoint=["true"], **common).run(), depends_on=["Older", prepare]
)
framework = ProcessingStep(
    "Framework",
    step_args=TensorFlowProcessor(framework_version="2.19", py_version="py312", **common).run(
        code="evaluate.py", outputs=[ProcessingOutput(source="/opt/ml/processing/evaluation", output_name="evaluation")]
    ),
)
estimator = TensorFlow(
    entry_point="train.py",
    image_uri=IMAGE,
    hyperparameters={"rows": rows, "kind": kind, "rate": 0.1, "note": "a b", "from": place},
    metric_definitions=[{"Name": "loss", "Regex": "loss: (.*)"}],
    environment={"EXECUTION": ExecutionVariables.PIPELINE_NAME},
    disable_profiler=True,
    model_dir=False,
    **common,
)
policy = SageMakerJobStepRetryPolicy([SageMakerJobExceptionTypeEnum.INTERNAL_ERROR], max_attempts=2)
train = TrainingStep(
    "Train",
    step_args=estimator.fit({"train": TrainingInput(place, content_type="text/csv"), "test": "s3://rows/test"}),
    cache_config=cache,
    retry_policies=[policy, StepRetryPolicy([StepExceptionTypeEnum.THROTTLING], expire_after_mins=5, backoff_rate=3.0)],
)
again = TrainingStep("Again", estimator=estimator, inputs={"train": TrainingInput(place)}, depends_on=[train])
ranges = {
    "rate": ContinuousParameter(0.1, 1.0, scaling_type="Logarithmic"),
    "units": IntegerParameter(1, 8),
    "layer": CategoricalParameter(["a", 2]),
}
tune = TuningStep(
    "Tune",
    step_args=HyperparameterTuner(
        estimator,
        "loss",
        ranges,
        metric_definitions=[{"Name": "loss", "Regex": "loss: (.*)"}],
        objective_type="Minimize",
        max_jobs=3,
        max_parallel_jobs=2,
        random_seed=3,
    ).fit({"train": TrainingInput(place)}),
)
several = TuningStep(
    "Several",
    step_args=HyperparameterTuner.create(
        {"wide": estimator, "deep": estimator},
        {"wide": "loss", "deep": "loss"},
        {"wide": ranges, "deep": {"units": IntegerParameter(1, 80)}},
        metric_definitions_dict={
            "wide": [{"Name": "loss", "Regex": "loss: (.*)"}],
            "deep": [{"Name": "loss", "Regex": "deep: (.*)"}],
        },
        strategy="Random",
        objective_type="Minimize",
        max_jobs=4,
        base_tuning_job_name="both",
        tags=[{"Key": "team", "Value": "tides"}],
    ).fit(
        {"wide": {"train": TrainingInput(place)}, "deep": {"train": TrainingInput("s3://rows/deep")}},
        include_cls_metadata={},
    ),
)
best = TensorFlowModel(
    tune.get_top_model_s3_uri(0, "models", "tuned"), role=ROLE, framework_version="2.19", sagemaker_session=session
)
made = ModelStep("Best", step_args=best.create(instance_type="ml.m5.large"), depends_on=["Train"])
score = TransformStep(
    "Score",
    step_args=Transformer(
        made.properties.ModelName,
        1,
        "ml.m5.large",
        strategy="SingleRecord",
        assemble_with="Line",
        sagemaker_session=session,
    ).transform(data, content_type="application/json", split_type="Line"),
)
score_again = TransformStep(
    "ScoreAgain",
    transformer=Transformer(
        made.properties.ModelName, 1, "ml.m5.large", output_path="s3://rows/scored", sagemaker_session=session
    ),
    inputs=TransformInput(data=place, content_type="text/csv", split_type="Line", join_source="Input"),
)
archive = train.properties.ModelArtifacts.S3ModelArtifacts
model = TensorFlowModel(archive, role=ROLE, framework_version="2.19", env={"A": "b"}, sagemaker_session=session)
with_code = TensorFlowModel(
    archive, role=ROLE, framework_version="2.19", entry_point="inference.py", sagemaker_session=session
)
kinds = {
    "content_types": ["application/json"],
    "response_types": ["application/json"],
    "inference_instances": ["ml.m5.large"],
    "transform_instances": ["ml.m5.large"],
    "model_package_group_name": "tides",
}
count = JsonGet(step_name="Prepare", property_file=report, json_path="rows.count")
check = ConditionStep(
    "Check",
    conditions=[
        ConditionGreaterThanOrEqualTo(count, 5),
        ConditionLessThanOrEqualTo(train.properties.FinalMetricDataList["loss"].Value, rate),
        ConditionOr([ConditionNot(ConditionIn(kind, ["small"])), ConditionEquals(strict, True)]),
    ],
    if_steps=[
        ModelStep("Plain", step_args=model.register(**kinds, approval_status="Approved", description="good")),
        ModelStep("Code", step_args=with_code.create(instance_type="ml.m5.large")),
        ConditionStep(
            "Inner",
            conditions=[
                ConditionGreaterThan(OlderJsonGet(prepare, report, "rows.count"), 7),
                ConditionLessThan(count, 70),
            ],
            if_steps=[FailStep("TooMany")],
            else_steps=[],
        ),
    ],
    else_steps=[FailStep("TooFew", error_message=Join(on=" ", values=["only", count, "rows"]))],
    depends_on=[again],
)
configured = EndpointConfigStep(
    "Configure",
    step_args=session.create_endpoint_config(
        name="tides", model_name=made.properties.ModelName, initial_instance_count=1, instance_type="ml.m5.large"
    ),
)
served = EndpointStep(
    "Serve",
    step_args=session.create_endpoint(
        endpoint_name="tides", config_name=configured.properties.EndpointConfigName, tags=[{"Key": "a", "Value": "b"}]
    ),
)
old_model = CreateModelStep("OldModel", model=model, inputs=CreateModelInput(instance_type="ml.m5.large"))
old_register = RegisterModel(
    "OldRegister", model=model, **kinds, approval_status="Approved", display_name="Register", description="old"
)
steps = [prepare, older, command, framework, train, again, tune, several, made, score, score_again, check]
definition = Pipeline(
    "everything",
    parameters=[rows, rate, kind, data, machine, strict],
    steps=[*steps, old_model, old_register, configured, served],
    pipeline_experiment_config=PipelineExperimentConfig("tides", ExecutionVariables.PIPELINE_EXECUTION_ID),
    sagemaker_session=session,
).definition()
prefixed = TensorFlow(
    entry_point="train.py", image_uri=IMAGE, base_job_name="tides", disable_profiler=True, model_dir=False, **common
)
named = Pipeline(
    "named",
    steps=[TrainingStep("Named", step_args=prefixed.fit("s3://rows/train"))],
    pipeline_experiment_config=None,
    pipeline_definition_config=PipelineDefinitionConfig(use_custom_job_prefix=True),
    sagemaker_session=session,
).definition()
sys.stdout.write("\n".join(["DEFINITION " + definition, "NAMED " + named, ""]))
