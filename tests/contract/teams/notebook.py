"""A team's notebook in one script, with the imports of AWS's SDK v2, for `tidemill run` where that SDK is missing."""

import io
import json
import os
import pathlib
import tarfile
import tempfile

import sagemaker
from sagemaker import get_execution_role, image_uris
from sagemaker.analytics import ExperimentAnalytics, HyperparameterTuningJobAnalytics, TrainingJobAnalytics
from sagemaker.debugger import DebuggerHookConfig, ProfilerConfig, ProfilerRule, Rule, rule_configs
from sagemaker.estimator import Estimator, Framework
from sagemaker.exceptions import UnexpectedStatusException
from sagemaker.experiments.run import Run, load_run
from sagemaker.inputs import TrainingInput
from sagemaker.local import LocalSession
from sagemaker.multidatamodel import MultiDataModel
from sagemaker.processing import ProcessingInput, ProcessingOutput, ScriptProcessor
from sagemaker.s3 import S3Downloader, S3Uploader, parse_s3_url, s3_path_join
from sagemaker.tensorflow import TensorFlow
from sagemaker.tensorflow.serving import Model
from sagemaker.tuner import ContinuousParameter, HyperparameterTuner, IntegerParameter
from sagemaker.utils import base_name_from_image, name_from_base, unique_name_from_base
from sagemaker.workflow.condition_step import ConditionStep
from sagemaker.workflow.conditions import ConditionGreaterThanOrEqualTo
from sagemaker.workflow.fail_step import FailStep
from sagemaker.workflow.functions import Join, JsonGet
from sagemaker.workflow.model_step import ModelStep
from sagemaker.workflow.parallelism_config import ParallelismConfiguration
from sagemaker.workflow.parameters import ParameterInteger, ParameterString
from sagemaker.workflow.pipeline import Pipeline
from sagemaker.workflow.pipeline_context import LocalPipelineSession, PipelineSession
from sagemaker.workflow.properties import PropertyFile
from sagemaker.workflow.selective_execution_config import SelectiveExecutionConfig
from sagemaker.workflow.steps import CacheConfig, ProcessingStep, TrainingStep, TuningStep

SCRIPTS = {
    "prepare.py": """
        import argparse, json, pathlib, sys
        parser = argparse.ArgumentParser()
        parser.add_argument("--rows", type=int, default=10)
        rows = parser.parse_args().rows
        out = pathlib.Path("/opt/ml/processing/report")
        (out / "report.json").write_text(json.dumps({"rows": {"count": rows}}))
        print("prepared", rows, flush=True)
    """,
    "train.py": """
        import json, os, pathlib, sys
        values = json.loads(os.environ["SM_HPS"])
        if values.get("fail"):
            sys.exit("asked to fail")
        rate = float(values.get("rate", 1.0))
        print(f"loss: {rate * float(values.get('units', 1))};", flush=True)
        pathlib.Path(os.environ["SM_MODEL_DIR"], "weights.txt").write_text(json.dumps(values))
    """,
    "inference.py": "def input_handler(data, context):\\n    return data.read()\\n",
}
work = tempfile.TemporaryDirectory()
os.chdir(work.name)
for name, text in SCRIPTS.items():
    lines = text.strip("\n").replace("\\n", "\n").splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    pathlib.Path(name).write_text("\n".join(line[indent:] for line in lines).strip() + "\n")

session = sagemaker.Session()
role = get_execution_role()
bucket, region = session.default_bucket(), session.boto_region_name
prefix = name_from_base("notebook")
assert role == session.get_caller_identity_arn()
image = image_uris.retrieve("tensorflow", region, version="2.21", py_version="py311", instance_type="ml.m5.large")
print("IMAGE", image.rpartition("/")[2], base_name_from_image(image), len(unique_name_from_base("a")) < 63)

# S3
os.makedirs("rows", exist_ok=True)
pathlib.Path("rows/a.csv").write_text("1,2\n")
pathlib.Path("rows/b.csv").write_text("3,4\n")
rows = S3Uploader.upload("rows", s3_path_join("s3://", bucket, prefix, "rows"))
S3Uploader.upload_string_as_file_body("hello", f"{rows}/c.txt")
S3Uploader.upload_bytes(b"\0\1", f"{rows}/d.bin")
found = S3Downloader.list(rows)
assert [uri.rpartition("/")[2] for uri in found] == ["a.csv", "b.csv", "c.txt", "d.bin"], found
assert S3Downloader.read_file(f"{rows}/c.txt") == "hello"
assert S3Downloader.read_bytes(f"{rows}/d.bin") == b"\0\1"
S3Downloader.download(rows, "again")
assert pathlib.Path("again/b.csv").read_text() == "3,4\n"
session.upload_data("rows/a.csv", bucket, f"{prefix}/one")
assert session.list_s3_files(bucket, f"{prefix}/one") == [f"{prefix}/one/a.csv"]
assert session.read_s3_file(bucket, f"{prefix}/one/a.csv") == "1,2\n"
print("UPLOADED", parse_s3_url(rows)[1] == f"{prefix}/rows", len(found))

# A processing job, on `instance_type="local"`
processor = ScriptProcessor(
    image_uri=image,
    command=["python3"],
    role=role,
    instance_count=1,
    instance_type="local",
    sagemaker_session=LocalSession(),
)
processor.run(
    "prepare.py",
    inputs=[ProcessingInput(source=rows, destination="/opt/ml/processing/input")],
    outputs=[ProcessingOutput(source="/opt/ml/processing/report", output_name="report")],
    arguments=["--rows", "7"],
    logs=False,
)
target = processor.latest_job.outputs[0].destination
print("PROCESSED", json.loads(S3Downloader.read_file(f"{target}/report.json")))

# A training within a run, with rules and profiler, and its metrics
metrics = [{"Name": "loss", "Regex": "loss: (.*?);"}]
common = {
    "role": role,
    "instance_count": 1,
    "instance_type": "local_gpu",
    "sagemaker_session": session,
    "model_dir": False,
}
experiment = unique_name_from_base("notebook")
with Run(experiment_name=experiment, run_name="first", sagemaker_session=session) as run:
    estimator = TensorFlow(
        "train.py",
        image_uri=image,
        hyperparameters={"rate": 0.5},
        metric_definitions=metrics,
        rules=[
            Rule.sagemaker(rule_configs.loss_not_decreasing()),
            ProfilerRule.sagemaker(rule_configs.ProfilerReport()),
        ],
        debugger_hook_config=DebuggerHookConfig(s3_output_path=f"s3://{bucket}/{prefix}/debug"),
        profiler_config=ProfilerConfig(system_monitor_interval_millis=500),
        **common,
    )
    estimator.fit({"train": TrainingInput(rows)}, logs=False)
with load_run(experiment_name=experiment, run_name="first", sagemaker_session=session) as run:
    run.log_parameter("rows", 7)
job = estimator.latest_training_job.name
session.wait_for_job(job)
session.logs_for_job(job)
described = session.describe_training_job(job)
assert described["DebugRuleConfigurations"][0]["RuleParameters"]["rule_to_invoke"] == "LossNotDecreasing"
assert described["ProfilerRuleConfigurations"][0]["RuleConfigurationName"] == "ProfilerReport"
frame = TrainingJobAnalytics(job, metric_names=["loss"], sagemaker_session=session).dataframe()
print("TRAINED", isinstance(estimator, Framework), list(frame["metric_name"]), list(frame["value"]))
runs = ExperimentAnalytics(experiment_name=experiment, sagemaker_session=session).dataframe()
print("TRACKED", [value for value in runs["rows"] if value == 7], experiment in runs["Experiments"].iloc[0])
try:
    Estimator(image, entry_point="train.py", hyperparameters={"fail": True}, **common).fit(logs=False)
except UnexpectedStatusException as error:
    print("FAILED", "asked to fail" in str(error))

# Tuning of two estimators
second = TensorFlow("train.py", image_uri=image, hyperparameters={"rate": 0.1}, metric_definitions=metrics, **common)
tuner = HyperparameterTuner.create(
    {"first": estimator, "second": second},
    {"first": "loss", "second": "loss"},
    {"first": {"rate": ContinuousParameter(0.2, 0.9)}, "second": {"units": IntegerParameter(2, 9)}},
    strategy="Random",
    objective_type="Minimize",
    max_jobs=4,
    max_parallel_jobs=2,
    random_seed=1,
    base_tuning_job_name="both",
)
tuner.fit({"first": {"train": rows}, "second": {"train": rows}})
attached = HyperparameterTuner.attach(tuner.latest_tuning_job.name, sagemaker_session=session)
assert sorted(attached.estimator_dict) == ["first", "second"]
assert attached.estimator_dict["second"].hyperparameters()["rate"] == 0.1
analytics = attached.analytics()
assert isinstance(analytics, HyperparameterTuningJobAnalytics)
table = analytics.dataframe().sort_values("FinalObjectiveValue")
best = attached.best_training_job()
print("TUNED", len(table), table.iloc[0]["TrainingJobName"] == best, sorted(analytics.tuning_ranges))
assert attached.best_estimator().model_data.endswith(f"{best}/output/model.tar.gz")

# Archives below one prefix, served by one endpoint's model
buffer = io.BytesIO()
with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
    archive.add("rows", arcname="1")
pathlib.Path("model.tar.gz").write_bytes(buffer.getvalue())
serving = Model(f"s3://{bucket}/{prefix}/model.tar.gz", role=role, framework_version="2.21", sagemaker_session=session)
models = MultiDataModel(f"{prefix}-all", f"s3://{bucket}/{prefix}/models/", model=serving, sagemaker_session=session)
models.add_model("model.tar.gz", "a.tar.gz")
models.add_model(estimator.model_data, "deep/b.tar.gz")
made = session.sagemaker_client.describe_model(ModelName=models.create())["PrimaryContainer"]
print("LISTED", list(models.list_models()), made["Mode"], "tensorflow-inference" in made["Image"])

# A pipeline, with every session in which AWS's SDK writes one
steps_session = PipelineSession()
assert LocalPipelineSession().is_deferring
shared = {**common, "instance_type": "ml.m5.large", "sagemaker_session": steps_session}
count, data = ParameterInteger("Rows", default_value=10), ParameterString("Data", default_value=rows)
cache = CacheConfig(enable_caching=True, expire_after="P1D")
report = PropertyFile("Report", output_name="report", path="report.json")
del shared["model_dir"]
prepare = ProcessingStep(
    "Prepare",
    step_args=ScriptProcessor(image_uri=image, command=["python3"], **shared).run(
        code="prepare.py",
        inputs=[ProcessingInput(source=data, destination="/opt/ml/processing/input")],
        outputs=[ProcessingOutput(source="/opt/ml/processing/report", output_name="report")],
        arguments=["--rows", count.to_string()],
    ),
    property_files=[report],
    cache_config=cache,
)
place = prepare.properties.ProcessingOutputConfig.Outputs["report"].S3Output.S3Uri
trainer = TensorFlow(
    "train.py", image_uri=image, hyperparameters={"units": count}, metric_definitions=metrics, model_dir=False, **shared
)
train = TrainingStep("Train", step_args=trainer.fit({"train": TrainingInput(place)}), cache_config=cache)
tuned = TuningStep(
    "Tune",
    step_args=HyperparameterTuner(
        trainer, "loss", {"rate": ContinuousParameter(0.1, 0.9)}, strategy="Random", max_jobs=2, max_parallel_jobs=2
    ).fit({"train": TrainingInput(place)}),
)
coded = Model(
    train.properties.ModelArtifacts.S3ModelArtifacts,
    role=role,
    framework_version="2.21",
    entry_point="inference.py",
    sagemaker_session=steps_session,
)
best_model = Model(
    tuned.get_top_model_s3_uri(0, bucket), role=role, framework_version="2.21", sagemaker_session=steps_session
)
rows_read = JsonGet(step_name=prepare.name, property_file=report, json_path="rows.count")
check = ConditionStep(
    "Check",
    conditions=[ConditionGreaterThanOrEqualTo(rows_read, 5)],
    if_steps=[
        ModelStep("Best", step_args=best_model.create(instance_type="ml.m5.large")),
        ModelStep(
            "Register",
            step_args=coded.register(
                content_types=["application/json"],
                response_types=["application/json"],
                model_package_group_name=f"{prefix}-models",
                approval_status="Approved",
            ),
        ),
    ],
    else_steps=[FailStep("TooFew", error_message=Join(on=" ", values=["only", rows_read, "rows"]))],
)
pipeline = Pipeline(
    f"{prefix}-pipeline",
    parameters=[count, data],
    steps=[prepare, train, tuned, check],
    sagemaker_session=steps_session,
)
pipeline.upsert(role_arn=role)
pipeline.upsert(role_arn=role, description="again", tags=[{"Key": "team", "Value": "tides"}])


def execute(**parameters):
    execution = pipeline.start(parameters, parallelism_config=ParallelismConfiguration(3))
    try:
        execution.wait(delay=1, max_attempts=600)
    except Exception as error:
        print("WAITED", type(error).__name__)
    return execution, {step["StepName"]: step for step in execution.list_steps()}


first, done = execute()
print("EXECUTED", first.describe()["PipelineExecutionStatus"], sorted(done))
packages = session.sagemaker_client.list_model_packages(ModelPackageGroupName=f"{prefix}-models")
package = packages["ModelPackageSummaryList"][0]["ModelPackageArn"]
container = session.sagemaker_client.describe_model_package(ModelPackageName=package)["InferenceSpecification"]
uri = container["Containers"][0]["ModelDataUrl"]
S3Downloader.download(uri, "packed")
with tarfile.open("packed/model.tar.gz") as archive:
    names = sorted(name for name in archive.getnames() if archive.getmember(name).isfile())
print("PACKED", names, container["Containers"][0]["Framework"])
second, done = execute(Rows=3)
print("REFUSED", done["TooFew"]["FailureReason"], pipeline.latest_pipeline_version_id)
pathlib.Path("train.py").write_text(pathlib.Path("train.py").read_text() + "# changed\n")
pipeline.upsert(role_arn=role)
third, done = execute()
print("CACHED", sorted(name for name, step in done.items() if "CacheHitResult" in step))
chosen = pipeline.start(
    pipeline.build_parameters_from_execution(first.arn),
    selective_execution_config=SelectiveExecutionConfig(["Train"], source_pipeline_execution_arn=first.arn),
)
chosen.wait(delay=1, max_attempts=600)
print("SELECTED", [step["StepName"] for step in chosen.list_steps() if "SelectiveExecutionResult" not in step])
pipeline.delete()

for line in (
    "from sagemaker.workflow.lambda_step import LambdaStep",
    "from sagemaker.debugger import FrameworkProfile",
    "from sagemaker.pytorch import PyTorch",
    "from sagemaker.utils import nothing",
):
    try:
        exec(line)
    except ImportError as error:
        print("INSTEAD", str(error).partition(": ")[2] or str(error).partition("; ")[2])
