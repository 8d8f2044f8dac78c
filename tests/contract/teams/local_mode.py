"""Local mode of AWS's SDK v2: `instance_type="local"`, local files, a local session, a pipeline."""

import os
import pathlib
import sys
import tempfile

import sagemaker
from sagemaker.local import LocalSession
from sagemaker.processing import ProcessingOutput, ScriptProcessor
from sagemaker.tensorflow import TensorFlow
from sagemaker.workflow.pipeline import Pipeline
from sagemaker.workflow.pipeline_context import LocalPipelineSession
from sagemaker.workflow.steps import ProcessingStep

IMAGE = "000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py311"
if "tidemill.compat" in sys.modules:  # then nothing needs a proxy for AWS's hosts
    os.environ["HTTPS_PROXY"] = os.environ["https_proxy"] = "http://127.0.0.1:9"
work = tempfile.TemporaryDirectory()
os.chdir(work.name)
os.mkdir("data")
pathlib.Path("data/rows.csv").write_text("1\n2\n")
pathlib.Path("train.py").write_text(
    "import os, pathlib\n"
    "rows = pathlib.Path(os.environ['SM_CHANNEL_TRAIN'], 'rows.csv').read_text().split()\n"
    "pathlib.Path(os.environ['SM_MODEL_DIR'], 'rows').write_text(' '.join(rows))\n"
    "print('ROWS', *rows, flush=True)\n"
)
pathlib.Path("prepare.py").write_text("open('/opt/ml/processing/out/done', 'w').write('done')\n")
role = sagemaker.get_execution_role()
print("ROLE", role)
common = {"role": role, "instance_count": 1, "instance_type": "local"}

estimator = TensorFlow(entry_point="train.py", image_uri=IMAGE, model_dir=False, **common)
estimator.fit({"train": "file://data"})
name = estimator.latest_training_job.name
client = sagemaker.Session().sagemaker_client
described = client.describe_training_job(TrainingJobName=name)
print("TRAINED", described["TrainingJobStatus"], described["ResourceConfig"]["InstanceType"], estimator.model_data[:5])

outputs = [ProcessingOutput(source="/opt/ml/processing/out", output_name="out")]
processor = ScriptProcessor(image_uri=IMAGE, command=["python3"], sagemaker_session=LocalSession(), **common)
processor.run("prepare.py", outputs=outputs)
found = client.describe_processing_job(ProcessingJobName=processor.latest_job.job_name)
print("PROCESSED", found["ProcessingJobStatus"])

session = LocalPipelineSession()
step = ScriptProcessor(image_uri=IMAGE, command=["python3"], sagemaker_session=session, **common)
pipeline = Pipeline(
    "local-mode",
    steps=[ProcessingStep("Prepare", step_args=step.run("prepare.py", outputs=outputs))],
    sagemaker_session=session,
)
pipeline.upsert(role)
execution = pipeline.start()
execution.wait(delay=1)
print("EXECUTED", execution.describe()["PipelineExecutionStatus"])
