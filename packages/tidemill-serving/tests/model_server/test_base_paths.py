"""Base paths in S3 and as file://, against tidemill's own S3."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from polling import poll
from running_service import running_service
from tidemill_serving.errors import RequestError, StartFailed
from tidemill_serving.versions.s3_models import S3Models, _endpoint
from tidemill_serving.versions.source import LocalModels, open_source

OFTEN = ("--file_system_poll_wait_seconds=0.05", "--host=127.0.0.1")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Yield the variables that direct boto3 to a running service."""
    with running_service(tmp_path_factory.mktemp("service")) as variables:
        yield variables


@pytest.fixture(scope="module")
def s3(service: dict[str, str]) -> Any:
    """Return boto3's client of the service, with the bucket ``models``."""
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=service["AWS_ENDPOINT_URL"],
        aws_access_key_id=service["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=service["AWS_SECRET_ACCESS_KEY"],
        region_name="us-west-2",
    )
    client.create_bucket(Bucket="models", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    return client


def put(s3: Any, directory: Path, key: str, *, without: str = "") -> None:
    for file in sorted(directory.rglob("*")):
        if file.is_file() and file.name != without:
            s3.upload_file(str(file), "models", f"{key}/{file.relative_to(directory)}")


def test_versions_in_s3_are_polled_downloaded_and_removed(
    command: Any, base: Callable[..., Path], models: Path, s3: Any, service: dict[str, str], tmp_path: Path
) -> None:
    put(s3, models / "half_plus/123", "team/half/1")
    put(s3, models / "half_plus/123", "team/half/7", without="saved_model.pb")
    s3.put_object(Bucket="models", Key="team/half/notes/readme", Body=b"no version")
    config = tmp_path / "models.config"
    config.write_text(
        'model_config_list { config { name: "half" base_path: "s3://models/team/half/" model_platform: "tensorflow" }'
        f' config {{ name: "here" base_path: "file://{base(3)}" model_platform: "tensorflow" }} }}'
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    server = command(f"--model_config_file={config}", *OFTEN, **service, TMPDIR=str(temporary)).start()

    def states(name: str) -> dict[str, str]:
        listed = server.get(f"/v1/models/{name}").json["model_version_status"]
        return {each["version"]: each["state"] for each in listed}

    def downloaded() -> list[str]:
        return sorted(file.parent.name for file in temporary.rglob("saved_model.pb"))

    assert (states("half"), states("here")) == ({"1": "AVAILABLE"}, {"3": "AVAILABLE"})
    assert server.predict("half", {"instances": [2.0]}).json == {"predictions": [3.0]}
    assert downloaded() == ["1"]
    assert " path=s3://models/team/half/1 " in server.line("model.loaded", "name=half")
    s3.put_object(Bucket="models", Key="team/half/3/../x", Body=b"")
    s3.upload_file(str(models / "half_plus/123/saved_model.pb"), "models", "team/half/3/saved_model.pb")
    assert "team/half/3/../x is no path of a file" in server.line("model.failed", "version=3")
    assert states("half")["1"] == "AVAILABLE"
    for key in ("../x", "saved_model.pb"):
        s3.delete_object(Bucket="models", Key=f"team/half/3/{key}")
    put(s3, models / "half_plus/00000124", "team/half/2")
    poll(lambda: states("half").get("2") == "AVAILABLE" and states("half").get("1") == "END")
    assert server.predict("half", {"instances": [2.0]}).json == {"predictions": [4.0]}
    poll(lambda: downloaded() == ["2"])
    s3.upload_file(str(models / "half_plus/123/saved_model.pb"), "models", "team/half/7/saved_model.pb")
    poll(lambda: states("half").get("7") == "AVAILABLE")  # it was incomplete before
    metrics = server.get("/monitoring/prometheus/metrics").body.decode()
    assert re.findall(r'load_attempt_count{model_path="(s3:[^"]*)",status="success"} 1', metrics) == [
        f"s3://models/team/half/{version}" for version in (1, 2, 7)
    ]
    assert str(temporary) not in metrics
    assert server.terminate() == 0
    assert list(temporary.iterdir()) == []


def test_a_bucket_that_cannot_be_read_is_named_and_awaited(
    command: Any, s3: Any, service: dict[str, str], models: Path
) -> None:
    direct = {name: value for name, value in service.items() if name != "AWS_ENDPOINT_URL"}
    host = service["AWS_ENDPOINT_URL"].removeprefix("http://")
    server = command("--model_base_path=s3://later/half", *OFTEN, **direct, S3_ENDPOINT=host, S3_USE_HTTPS="0")
    server.launch()
    reason = server.line("model.awaited", "Could not find base path s3://later/half for servable default")
    assert "NoSuchBucket" in reason
    s3.create_bucket(Bucket="later", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    for file in (models / "half_plus/123").rglob("*"):
        if file.is_file():
            s3.upload_file(str(file), "later", f"half/123/{file.relative_to(models / 'half_plus/123')}")
    server.line("server.ready")
    assert server.predict("default", {"instances": [2.0]}).json == {"predictions": [3.0]}
    assert server.terminate() == 0


def test_a_version_that_changes_during_its_download_is_refused_and_leaves_nothing(
    s3: Any, service: dict[str, str], models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in service.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    put(s3, models / "half_plus/123", "changing/1")
    source = S3Models(bucket="models", prefix="changing")
    (found,) = source.find("half")

    def replace(**_: Any) -> None:
        s3.put_object(Bucket="models", Key="changing/1/saved_model.pb", Body=b"another")

    source._client.meta.events.register("before-call.s3.GetObject", replace)
    with pytest.raises(StartFailed, match="s3://models/changing/1 changed while it was downloaded"):
        source.fetch(found)
    assert not list(tmp_path.rglob("saved_model.pb"))
    s3.put_object(Bucket="models", Key="changing/1/../../escaped", Body=b"")
    with pytest.raises(StartFailed, match="is no path of a file"):
        source.fetch(found)
    assert source.find("half") == (found,)
    source.close()
    assert not list(tmp_path.iterdir())


def test_a_server_that_stops_ends_a_download_and_leaves_nothing(
    s3: Any, service: dict[str, str], models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in service.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    put(s3, models / "half_plus/123", "stopping/01")
    put(s3, models / "half_plus/123", "stopping/1")
    source = S3Models(bucket="models", prefix="stopping")
    (found,) = source.find("../../half")
    assert found.path.name == "01"
    asked = []

    def stop(params: dict[str, Any], **_: Any) -> None:
        asked.append(params)
        source.close()

    source._client.meta.events.register("before-call.s3.GetObject", stop)
    with pytest.raises(StartFailed):
        source.fetch(found)
    assert len(asked) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("base_path", "read"),
    [
        *(("/models/half", "/models/half"), ("file:///models/a%20b", "/models/a b"), ("file://localhost/m", "/m")),
        *(("FILE:///m/a#1?b", "/m/a#1?b"), ("//[m", "//[m")),
    ],
)
def test_a_path_and_a_file_uri_are_directories(base_path: str, read: str) -> None:
    source = open_source(base_path, name="half")
    assert isinstance(source, LocalModels)
    assert source._directory == Path(read)


@pytest.mark.parametrize("base_path", ["models", "", "gs://bucket/m", "file://host/m", "s3:///m", "/a\0b", "file://[m"])
def test_other_base_paths_are_refused_with_what_is_allowed(base_path: str) -> None:
    with pytest.raises(RequestError, match=r"(?s)absolute path or URI.*from S3 \(s3://BUCKET/PREFIX\)"):
        open_source(base_path, name="half")


@pytest.mark.parametrize(
    ("variables", "endpoint"),
    [
        ({}, None),
        ({"S3_ENDPOINT": "minio:9000"}, "https://minio:9000"),
        ({"S3_ENDPOINT": "minio:9000", "S3_USE_HTTPS": "0"}, "http://minio:9000"),
        ({"S3_ENDPOINT": "http://minio:9000"}, "http://minio:9000"),
        ({"S3_ENDPOINT": "minio:9000", "AWS_ENDPOINT_URL": "http://other"}, None),
    ],
)
def test_the_endpoint_is_that_of_either_client(variables: dict[str, str], endpoint: str | None) -> None:
    assert _endpoint(variables) == endpoint
