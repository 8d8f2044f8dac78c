"""A service with its records in PostgreSQL: it behaves the same, and accepts only its own database and directory."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidemill.testing import Service, ServiceDied

if TYPE_CHECKING:
    from postgresql_server import PostgresqlServer

ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"


@pytest.fixture
def url(postgresql: "PostgresqlServer") -> str:
    return postgresql.empty_database().replace("tidemill@", "tidemill:passphrase@")


@pytest.fixture
def service(url: str) -> Iterator[Service]:
    with Service(settings={"database_url": url}) as service:
        yield service


def create_model(service: Service, name: str) -> None:
    container = {"Image": "tensorflow-inference:2.21.0-cpu", "ModelDataUrl": "s3://data/model.tar.gz"}
    service.client("sagemaker").create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)


def models(service: Service) -> list[str]:
    found = service.client("sagemaker").list_models(SortBy="Name", SortOrder="Ascending")["Models"]
    return [each["ModelName"] for each in found]


def test_records_and_objects_survive_the_service_and_its_database(
    service: Service, postgresql: "PostgresqlServer"
) -> None:
    create_model(service, "first")
    s3 = service.client("s3")
    s3.create_bucket(Bucket="data")
    s3.put_object(Bucket="data", Key="a/ü", Body=b"content", Metadata={"of": "test"})
    service.kill()
    postgresql.kill()
    postgresql.start()
    service.start()
    create_model(service, "second")
    assert models(service) == ["first", "second"]
    found = service.client("s3").get_object(Bucket="data", Key="a/ü")
    assert (found["Body"].read(), found["Metadata"]) == (b"content", {"of": "test"})
    assert not (service.state_dir / "state.db").exists()


def test_requests_are_refused_while_the_database_is_away_and_answered_when_it_is_back(
    service: Service, postgresql: "PostgresqlServer"
) -> None:
    from botocore.config import Config
    from botocore.exceptions import ClientError

    create_model(service, "first")
    postgresql.kill()
    try:
        impatient = service.boto3_session().client("sagemaker", config=Config(retries={"total_max_attempts": 1}))
        with pytest.raises(ClientError, match="cannot be used now") as refused:
            impatient.list_models()
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
    finally:
        postgresql.start()
    create_model(service, "second")
    assert models(service) == ["first", "second"]
    assert "passphrase" not in service.log


def test_a_second_service_is_refused(service: Service, url: str) -> None:
    with (
        pytest.raises(ServiceDied, match="is in use by another service"),
        Service(settings={"database_url": url}),
    ):
        pass


def test_a_database_and_a_state_directory_belong_together(url: str, tmp_path: Path) -> None:
    with Service(state_dir=tmp_path / "one", settings={"database_url": url}):
        pass
    with (
        pytest.raises(ServiceDied, match="belongs to another state directory"),
        Service(state_dir=tmp_path / "two", settings={"database_url": url}),
    ):
        pass
    with pytest.raises(ServiceDied, match=r"are in PostgreSQL: set database_url"), Service(state_dir=tmp_path / "one"):
        pass
    with Service(state_dir=tmp_path / "three"):
        pass
    with (
        pytest.raises(ServiceDied, match=r"has its records in state\.db"),
        Service(state_dir=tmp_path / "three", settings={"database_url": url}),
    ):
        pass
