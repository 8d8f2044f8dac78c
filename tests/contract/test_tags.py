"""Tags by boto3: limits under concurrent clients, and no tags left of a deleted resource."""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tidemill.testing import Service

ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
CONTAINER = {"Image": "tensorflow-inference:2.21.0-cpu", "ModelDataUrl": "s3://sagemaker-us-west-2-000000000000/m"}
LIMIT = 50

Create = Callable[..., Any]


@pytest.fixture
def sagemaker(tidemill_service: Service) -> Any:
    return tidemill_service.boto3_session().client("sagemaker", config=Config(max_pool_connections=16))


@pytest.fixture
def name() -> str:
    return f"tags-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def creates(sagemaker: Any, jobs: Any, name: str) -> Iterator[dict[str, tuple[Create, Callable[[], Any]]]]:
    """Yield functions that create and describe each kind of resource with tags, all under one name."""
    variants = [{"VariantName": "v", "ModelName": name, "InstanceType": "local", "InitialInstanceCount": 1}]
    job = jobs.request("print('RUN')", name=name)
    yield {
        "training-job": (
            lambda **tags: sagemaker.create_training_job(**job, **tags),
            lambda: sagemaker.describe_training_job(TrainingJobName=name),
        ),
        "model": (
            lambda **tags: sagemaker.create_model(
                ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=CONTAINER, **tags
            ),
            lambda: sagemaker.describe_model(ModelName=name),
        ),
        "endpoint-config": (
            lambda **tags: sagemaker.create_endpoint_config(
                EndpointConfigName=name, ProductionVariants=variants, **tags
            ),
            lambda: sagemaker.describe_endpoint_config(EndpointConfigName=name),
        ),
        "endpoint": (
            lambda **tags: sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name, **tags),
            lambda: sagemaker.describe_endpoint(EndpointName=name),
        ),
    }
    for delete in (
        lambda: sagemaker.delete_endpoint(EndpointName=name),
        lambda: sagemaker.delete_endpoint_config(EndpointConfigName=name),
        lambda: sagemaker.delete_model(ModelName=name),
    ):
        try:
            delete()
        except ClientError as error:
            assert "Could not find" in str(error)


def pairs(count: int, *, prefix: str = "k") -> list[dict[str, str]]:
    return [{"Key": f"{prefix}{number}", "Value": "v"} for number in range(count)]


def code_of(call: Callable[[], Any]) -> str:
    """Return the error code of a call; empty if it succeeds."""
    try:
        call()
    except ClientError as error:
        assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 400
        return str(error.response["Error"]["Code"])
    return ""


def test_clients_that_add_tags_at_the_same_time_never_pass_the_limit(sagemaker: Any, name: str) -> None:
    model = sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=CONTAINER)
    arn = model["ModelArn"]
    requests = [pairs(20, prefix=f"client{client}-") for client in range(6)]
    with ThreadPoolExecutor(len(requests)) as threads:
        codes = list(
            threads.map(lambda tags: code_of(lambda: sagemaker.add_tags(ResourceArn=arn, Tags=tags)), requests)
        )
    stored = {tag["Key"] for tag in sagemaker.list_tags(ResourceArn=arn)["Tags"]}
    accepted = {tag["Key"] for tags, code in zip(requests, codes, strict=True) if not code for tag in tags}
    assert stored == accepted
    assert len(stored) == 40, "two of them fit"
    assert sorted(codes) == ["", ""] + ["ValidationException"] * 4
    sagemaker.delete_model(ModelName=name)


@pytest.mark.parametrize("kind", ["training-job", "model", "endpoint-config", "endpoint"])
@pytest.mark.parametrize("tags", [pairs(LIMIT + 1), [*pairs(2), *pairs(1)]], ids=["too many", "a key twice"])
def test_a_create_with_tags_that_are_not_allowed_creates_nothing(
    tags: list[dict[str, str]], kind: str, creates: dict[str, tuple[Create, Callable[[], Any]]]
) -> None:
    for needed in {"endpoint-config": ["model"], "endpoint": ["model", "endpoint-config"]}.get(kind, []):
        creates[needed][0]()
    create, describe = creates[kind]
    with pytest.raises(ClientError) as refused:
        create(Tags=tags)
    assert refused.value.response["Error"]["Code"] == "ValidationException"
    assert "'tags'" in refused.value.response["Error"]["Message"]
    with pytest.raises(ClientError, match=r"not find|not found"):
        describe()


def test_the_tags_of_a_deleted_resource_are_not_those_of_the_next_of_its_name(
    sagemaker: Any, name: str, creates: dict[str, tuple[Create, Callable[[], Any]]]
) -> None:
    create, _ = creates["model"]
    arn = create(Tags=pairs(3))["ModelArn"]
    assert sagemaker.list_tags(ResourceArn=arn)["Tags"] == pairs(3)
    sagemaker.delete_model(ModelName=name)
    with pytest.raises(ClientError, match="Could not find"):
        sagemaker.add_tags(ResourceArn=arn, Tags=pairs(1))
    create()
    assert sagemaker.list_tags(ResourceArn=arn)["Tags"] == []


def test_tags_of_another_region_s_resource_are_refused(sagemaker: Any, name: str) -> None:
    arn = sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=CONTAINER)["ModelArn"]
    with pytest.raises(ClientError, match="Could not find the resource"):
        sagemaker.add_tags(ResourceArn=arn.replace("us-west-2", "eu-west-1"), Tags=pairs(1))
    sagemaker.delete_model(ModelName=name)
