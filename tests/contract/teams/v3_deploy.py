"""Deploying with version 3 of AWS's SDK: ModelBuilder, resources of sagemaker-core, the registry, batch transform."""

import json
import time

import boto3
from sagemaker.core.helper.session_helper import Session, get_execution_role
from sagemaker.core.resources import Endpoint, EndpointConfig, Model, ModelPackage, TransformJob
from sagemaker.core.shapes import (
    ContainerDefinition,
    ProductionVariant,
    TransformDataSource,
    TransformInput,
    TransformOutput,
    TransformResources,
    TransformS3DataSource,
)
from sagemaker.serve import ModelBuilder
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, SourceCode

REGISTRY = "763104351884.dkr.ecr.us-west-2.amazonaws.com"
INSTANCE = "ml.m5.xlarge"
session = Session()
role = get_execution_role(session)
bucket = session.default_bucket()
stamp = int(time.time())
ROWS = json.dumps({"instances": [1.0, 5.0]})

trainer = ModelTrainer(
    sagemaker_session=session,
    role=role,
    training_image=f"{REGISTRY}/tensorflow-training:2.21.0-cpu-py311",
    source_code=SourceCode(source_dir=".", entry_script="halves.py"),
    compute=Compute(instance_type=INSTANCE, instance_count=1),
    base_job_name="team-halves",
)
trainer.train(logs=False)
data = trainer._latest_training_job.model_artifacts.s3_model_artifacts
image = f"{REGISTRY}/tensorflow-inference:2.21.0-cpu"


def ask(endpoint):
    answer = endpoint.invoke(body=ROWS, content_type="application/json", accept="application/json")
    return json.loads(answer.body.read() if hasattr(answer.body, "read") else answer.body)["predictions"]


builder = ModelBuilder(
    image_uri=image, s3_model_data_url=data, role_arn=role, sagemaker_session=session, instance_type=INSTANCE
)
built = builder.build(model_name=f"team-built-{stamp}")
endpoint = builder.deploy(endpoint_name=f"team-built-{stamp}", initial_instance_count=1, instance_type=INSTANCE)
# The SDK has shown a panel that ends without a line feed.
print("\nBUILT", type(built).__name__, endpoint.endpoint_status, ask(endpoint))
endpoint.delete()

name = f"team-core-{stamp}"
container = ContainerDefinition(image=image, model_data_url=data)
model = Model.create(model_name=name, primary_container=container, execution_role_arn=role)
variant = ProductionVariant(variant_name="All", model_name=name, initial_instance_count=1, instance_type=INSTANCE)
config = EndpointConfig.create(endpoint_config_name=name, production_variants=[variant])
endpoint = Endpoint.create(endpoint_name=name, endpoint_config_name=name)
endpoint.wait_for_status("InService")
print("CREATED", Endpoint.get(endpoint_name=name).production_variants[0].variant_name, ask(endpoint))

arn = builder.register(
    model_package_group_name=f"team-packages-{stamp}",
    content_types=["application/json"],
    response_types=["application/json"],
    inference_instances=[INSTANCE],
    transform_instances=[INSTANCE],
    approval_status="PendingManualApproval",
)
found = ModelPackage.get(model_package_name=arn)
found.update(model_approval_status="Approved")
listed = list(ModelPackage.get_all(model_package_group_name=f"team-packages-{stamp}", model_approval_status="Approved"))
print("REGISTERED", [each.model_package_version for each in listed])

boto3.client("s3").put_object(Bucket=bucket, Key=f"{name}/score/rows.json", Body=b"[1.0]\n[5.0]\n")
source = TransformS3DataSource(s3_data_type="S3Prefix", s3_uri=f"s3://{bucket}/{name}/score")
job = TransformJob.create(
    transform_job_name=name,
    model_name=name,
    transform_input=TransformInput(
        data_source=TransformDataSource(s3_data_source=source), content_type="application/json", split_type="Line"
    ),
    transform_output=TransformOutput(s3_output_path=f"s3://{bucket}/{name}/scored", assemble_with="Line"),
    transform_resources=TransformResources(instance_type=INSTANCE, instance_count=1),
    batch_strategy="SingleRecord",
)
job.wait()
answer = boto3.client("s3").get_object(Bucket=bucket, Key=f"{name}/scored/rows.json.out")["Body"].read()
print("SCORED", job.transform_job_status, "".join(answer.decode().split()))

endpoint.delete()
config.delete()
model.delete()
