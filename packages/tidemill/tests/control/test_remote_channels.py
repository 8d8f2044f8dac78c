"""Channels with a bucket in a remote S3, for which the tests use a second service."""

import asyncio
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tidemill.control.channels import ChannelResolver, DataMissing
from tidemill.core.clock import SystemClock
from tidemill.core.remotes import RemoteS3, pattern_for
from tidemill.instance.spec import ChannelSpec, InlineText, RemoteObject
from tidemill.settings import Settings
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.objects import schema as object_schema
from tidemill.store.objects.store import ObjectStore
from tidemill.testing import Service

Resolve = Callable[..., ChannelSpec]
assert object_schema  # importing it adds its tables to the metadata


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service() as service:
        service.client("s3").create_bucket(Bucket="far-away")
        yield service


@pytest.fixture
def s3(service: Service, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a client of the remote S3, whose bucket is empty and whose keys are in the environment."""
    for name, value in service.environment.items():
        if name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    client = service.client("s3")
    for page in client.get_paginator("list_objects_v2").paginate(Bucket="far-away"):
        if found := [{"Key": each["Key"]} for each in page.get("Contents", ())]:
            client.delete_objects(Bucket="far-away", Delete={"Objects": found, "Quiet": True})
    return client


@pytest.fixture
def resolve(tmp_path: Path, service: Service) -> Resolve:
    """Yield a function that resolves a channel; the service's own store has a bucket ``near`` with an object ``n``."""

    def make(
        kind: str,
        uri: str,
        *,
        remotes: dict[str, RemoteS3] | None = None,
        mode: str = "Pipe",
        fuse: str = "",
        **source: Any,
    ) -> ChannelSpec:
        named = {"far-*": RemoteS3(endpoint_url=service.url)} if remotes is None else remotes

        async def run() -> ChannelSpec:
            with SqliteDatabase.open(tmp_path / "state.db", metadata=metadata) as database:
                store = ObjectStore(database, tmp_path / "objects", clock=SystemClock())
                await store.ensure_bucket("near")
                await store.put_bytes("near", "n", b"near")
                await store.put_bytes("near", "m", b'[{"prefix": "s3://far-away/"}, "a"]')
                channels = ChannelResolver(store, named, fast_file_fault=lambda: fuse)
                source.update(S3DataType=kind, S3Uri=uri)
                request = {"ChannelName": "train", "DataSource": {"S3DataSource": source}}
                spec, _ = await asyncio.to_thread(channels.resolve, request, job_mode=mode)
                await store.close()
                return spec

        return asyncio.run(run())

    return make


def test_a_prefix_is_listed_and_pinned(resolve: Resolve, s3: Any) -> None:
    for key in ("d/b", "d/a", "d/sub/c", "d/", "e"):
        s3.put_object(Bucket="far-away", Key=key, Body=key.encode())
    assert list(resolve("S3Prefix", "s3://far-away/d/").objects) == [
        RemoteObject(
            uri=f"s3://far-away/d/{name}",
            name=name,
            size_bytes=len(name) + 2,
            etag=s3.head_object(Bucket="far-away", Key=f"d/{name}")["ETag"],
            remote="far-*",
        )
        for name in ("a", "b", "sub/c")
    ]


def put_all(s3: Any, contents: Mapping[str, bytes]) -> None:
    """Put many objects, several at once, so that the store commits them together."""
    with ThreadPoolExecutor(8) as pool:
        put = [pool.submit(s3.put_object, Bucket="far-away", Key=key, Body=body) for key, body in contents.items()]
    for one in put:
        one.result()


def test_more_objects_than_one_page_has(resolve: Resolve, s3: Any) -> None:
    names = [f"{number:04}" for number in range(1100)]
    put_all(s3, dict.fromkeys(names, b""))
    assert [entry.name for entry in resolve("S3Prefix", "s3://far-away/").objects] == names


def test_a_manifest_and_its_objects_may_be_in_different_places(resolve: Resolve, s3: Any) -> None:
    keys = [f"k{number:03}" for number in range(400)]
    put_all(s3, {key: key.encode() for key in keys})
    manifest = [{"prefix": "s3://"}, *(f"far-away/{key}" for key in reversed(keys)), "near/n"]
    s3.put_object(Bucket="far-away", Key="m", Body=json.dumps(manifest).encode())
    uris = [entry.uri for entry in resolve("ManifestFile", "s3://far-away/m").objects]
    assert uris == [f"s3://far-away/{key}" for key in reversed(keys)] + ["s3://near/n"]


def test_an_augmented_manifest_names_remote_objects(resolve: Resolve, s3: Any) -> None:
    s3.put_object(Bucket="far-away", Key="i", Body=b"image")
    lines = [{"image-ref": "s3://far-away/i", "label": 3}, {"image-ref": "s3://near/n", "label": "cat"}]
    s3.put_object(Bucket="far-away", Key="m", Body=b"\n".join(json.dumps(line).encode() for line in lines))
    spec = resolve("AugmentedManifestFile", "s3://far-away/m", AttributeNames=["image-ref", "label"])
    entries = [entry.text if isinstance(entry, InlineText) else entry.uri for entry in spec.objects]
    assert entries == ["s3://far-away/i", "3", "s3://near/n", "cat"]
    assert spec.entries_per_item == 2


def fault(resolve: Resolve, kind: str, uri: str, **options: Any) -> str:
    with pytest.raises(DataMissing) as raised:
        resolve(kind, uri, **options)
    return str(raised.value)


def test_the_error_names_what_does_not_exist(resolve: Resolve, s3: Any, service: Service) -> None:
    s3.put_object(Bucket="far-away", Key="m", Body=json.dumps([{"prefix": "s3://far-away/"}, "gone"]).encode())
    start = "ClientError: channel 'train': "
    assert fault(resolve, "S3Prefix", "s3://far-away/x/").startswith(
        f"{start}no S3 objects found under s3://far-away/x"
    )
    assert fault(resolve, "ManifestFile", "s3://far-away/m").endswith("names s3://far-away/gone, which does not exist")
    assert fault(resolve, "ManifestFile", "s3://far-away/x").endswith(f"does not exist at {service.url}")
    assert fault(resolve, "S3Prefix", "s3://far-none/") == (
        f"{start}the bucket of s3://far-none/ does not exist at {service.url} (remote_s3 'far-*')"
    )


def test_fast_file_mode_reads_remote_objects_unless_the_machine_cannot_mount_them(resolve: Resolve, s3: Any) -> None:
    s3.put_object(Bucket="far-away", Key="a", Body=b"a")
    assert resolve("S3Prefix", "s3://far-away/", mode="FastFile").input_mode == "FastFile"
    missing = "libfuse3 is missing; run `apt install fuse3` as root"
    assert resolve("S3Prefix", "s3://near/n", mode="FastFile", fuse=missing).input_mode == "FastFile"
    assert fault(resolve, "S3Prefix", "s3://far-away/", mode="FastFile", fuse=missing) == (
        "ClientError: channel 'train': input mode FastFile cannot read s3://far-away/, which is in a remote S3:"
        " libfuse3 is missing; run `apt install fuse3` as root. Or use File, which downloads the objects before the"
        " script starts, or Pipe, which streams them"
    )


def test_a_bucket_without_a_setting_is_never_requested(resolve: Resolve, s3: Any) -> None:
    s3.put_object(Bucket="far-away", Key="a", Body=b"a")
    reason = fault(
        resolve, "S3Prefix", "s3://far-away/", remotes={"other": RemoteS3(endpoint_url="http://127.0.0.1:1")}
    )
    assert "the bucket of s3://far-away/ does not exist; upload the data, or say in the setting remote_s3" in reason


def test_a_bucket_of_the_service_itself_is_never_asked_for_elsewhere(resolve: Resolve) -> None:
    spec = resolve("S3Prefix", "s3://near/n", remotes={"*": RemoteS3(endpoint_url="http://127.0.0.1:1")})
    assert [entry.uri for entry in spec.objects] == ["s3://near/n"]


def test_the_error_names_an_endpoint_without_a_listener(resolve: Resolve, s3: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    reason = fault(resolve, "S3Prefix", "s3://far-away/", remotes={"*": RemoteS3(endpoint_url=url)})
    assert f"s3://far-away/ cannot be read from {url} (remote_s3 '*'): " in reason


def test_wrong_and_missing_credentials_are_named(
    resolve: Resolve, s3: Any, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    reason = fault(resolve, "S3Prefix", "s3://far-away/")
    assert "HTTP 403 SignatureDoesNotMatch; check its credentials and what they allow" in reason
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    assert f"there are no credentials for {service.url}" in fault(resolve, "S3Prefix", "s3://far-away/")
    missing = {"*": RemoteS3(endpoint_url=service.url, profile="nobody")}
    assert "The config profile (nobody) could not be found" in fault(
        resolve, "S3Prefix", "s3://far-away/", remotes=missing
    )


def test_an_object_that_may_not_be_read_is_named(resolve: Resolve, s3: Any, service: Service) -> None:
    s3.put_object(Bucket="far-away", Key="a", Body=b"a")
    closed = {"*": RemoteS3(endpoint_url=service.url, anonymous=True)}
    assert fault(resolve, "ManifestFile", "s3://near/m", remotes=closed).endswith(
        f"s3://far-away/a cannot be read from {service.url} (remote_s3 '*'): HTTP 403; check its credentials and what"
        " they allow"
    )
    assert [entry.uri for entry in resolve("ManifestFile", "s3://near/m").objects] == ["s3://far-away/a"]


def test_the_nearest_pattern_wins() -> None:
    patterns = ["*", "data-*", "data-[x]", "data-x"]
    assert [pattern_for(bucket, patterns) for bucket in ("data-x", "data-y", "else")] == ["data-x", "data-*", "*"]
    assert pattern_for("else", ["data-*"]) is None


def test_the_setting_is_read_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.toml"
    monkeypatch.setenv("TIDEMILL_CONFIG", str(file))
    file.write_text('[remote_s3."data-*"]\nendpoint_url = "http://minio.lan:9000"\nanonymous = true\n')
    assert Settings().remote_s3 == {"data-*": RemoteS3(endpoint_url="http://minio.lan:9000", anonymous=True)}
    for wrong in (
        'endpoint_url = "minio.lan"',
        'endpoint_url = "http://key:secret@minio.lan"',
        'endpoint_url = "http://minio.lan/bucket"',
        'endpoint_url = "http://minio.lan"\nsecret = "x"',
        'region = "us-west-2"',
    ):
        file.write_text(f'[remote_s3."data-*"]\n{wrong}\n')
        with pytest.raises(ValidationError):
            Settings()
