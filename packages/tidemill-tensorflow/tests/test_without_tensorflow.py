"""Paths and errors of S3, hooks on imports, and the switches that a job sets."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError

from tidemill_tensorflow import activation
from tidemill_tensorflow.imports import when_imported
from tidemill_tensorflow.s3 import failures
from tidemill_tensorflow.s3.location import Location


@pytest.mark.parametrize(
    ("path", "bucket", "key", "prefix"),
    [
        ("s3://b", "b", "", ""),
        ("s3://b/", "b", "", ""),
        ("s3://b/a/k", "b", "a/k", "a/k/"),
        ("s3://b/a/", "b", "a", "a/"),
        ("s3://b//k", "b", "/k", "/k/"),
        ("s3://b/a://c", "b", "a://c", "a://c/"),
    ],
)
def test_a_path_is_a_bucket_and_a_key(path: str, bucket: str, key: str, prefix: str) -> None:
    location = Location.parse(path)
    assert (location.bucket, location.key, location.prefix) == (bucket, key, prefix)
    assert location.parameters == {"Bucket": bucket, "Key": key}
    assert str(location) == f"s3://{bucket}/{key}"
    assert location.child("other") == Location(bucket, "other")


@pytest.mark.parametrize("path", ["", "b/k", "s3:/b", "s3://", "s3:///k", "gs://b/k", "/local"])
def test_a_path_without_a_bucket_is_refused_with_the_form(path: str) -> None:
    with pytest.raises(failures.FilesystemError, match="names no bucket; paths have the form s3://BUCKET/KEY") as found:
        Location.parse(path)
    assert found.value.code == failures.INVALID_ARGUMENT
    assert repr(path) in found.value.text


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, failures.INVALID_ARGUMENT),
        (401, failures.UNAUTHENTICATED),
        (403, failures.PERMISSION_DENIED),
        (404, failures.NOT_FOUND),
        (409, failures.ABORTED),
        (412, failures.FAILED_PRECONDITION),
        (416, failures.OUT_OF_RANGE),
        (429, failures.RESOURCE_EXHAUSTED),
        (507, failures.RESOURCE_EXHAUSTED),
        (503, failures.UNAVAILABLE),
        (418, failures.UNKNOWN),
    ],
)
def test_a_status_of_s3_has_a_code_of_tensorflow(status: int, code: int) -> None:
    answer: Any = {"ResponseMetadata": {"HTTPStatusCode": status}, "Error": {"Code": "Name", "Message": "why"}}
    with pytest.raises(failures.FilesystemError) as found, failures.as_filesystem_error("s3://b/k"):
        raise ClientError(answer, "GetObject")
    assert (found.value.code, found.value.text) == (code, "s3://b/k: Name: why")


def test_answers_without_words_and_failures_without_an_answer_are_named() -> None:
    bare: Any = {"ResponseMetadata": {"HTTPStatusCode": 500}}
    for error, code, words in (
        (ClientError(bare, "GetObject"), failures.UNAVAILABLE, "x: 500: no reason given"),
        (NoCredentialsError(), failures.UNAUTHENTICATED, "x: Unable to locate credentials"),
        (EndpointConnectionError(endpoint_url="http://[::1]:1"), failures.UNAVAILABLE, "x: Could not connect"),
    ):
        with pytest.raises(failures.FilesystemError) as found, failures.as_filesystem_error("x"):
            raise error
        assert found.value.code == code and found.value.text.startswith(words)
    with pytest.raises(KeyError), failures.as_filesystem_error("x"):
        raise KeyError("a fault of the caller stays what it is")


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module that nothing has imported; its import adds itself to a list."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    (tmp_path / "imported_later.py").write_text("value = 1\n")
    monkeypatch.delitem(sys.modules, "imported_later", raising=False)
    return "imported_later"


def test_actions_run_once_after_the_import_or_at_once(later: str) -> None:
    seen: list[Any] = []
    finders = len(sys.meta_path)
    for _ in range(2):
        when_imported(later, lambda module: seen.append(module.value))
    __import__("json")
    assert not seen and len(sys.meta_path) == finders + 2
    module = __import__(later)
    assert seen == [1, 1] and len(sys.meta_path) == finders, "the finders have gone"
    when_imported(later, seen.append)
    assert seen[2:] == [module]


def test_an_action_sees_no_module_whose_import_fails(later: str, tmp_path: Path) -> None:
    (tmp_path / f"{later}.py").write_text("1 / 0\n")
    seen: list[Any] = []
    when_imported(later, seen.append)
    with pytest.raises(ZeroDivisionError):
        __import__(later)
    when_imported("no_such_module_at_all", seen.append)
    with pytest.raises(ModuleNotFoundError):
        __import__("no_such_module_at_all")
    assert not seen


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "--xla_dump_to=/r/hlo"),
        ("--xla_cpu_x=1", "--xla_cpu_x=1 --xla_dump_to=/r/hlo"),
        ("--xla_dump_to=/own", "--xla_dump_to=/own"),
    ],
)
def test_dumps_of_graphs_go_beside_the_report_unless_the_script_has_a_place(
    monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    monkeypatch.setenv("TIDEMILL_COMPILER", "1")
    monkeypatch.setenv("TIDEMILL_COMPILER_REPORT", "/r")
    monkeypatch.setenv("TIDEMILL_COMPILER_DEBUG", "true")
    monkeypatch.setenv("XLA_FLAGS", before)
    activation.before_import()
    assert os.environ["XLA_FLAGS"] == after
    monkeypatch.setenv("XLA_FLAGS", before)
    monkeypatch.setenv("TIDEMILL_COMPILER_DEBUG", "0")
    activation.before_import()
    assert os.environ["XLA_FLAGS"] == before


def test_a_compiler_that_cannot_start_costs_no_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEMILL_COMPILER_MAX_COST", "soon")
    activation._switch_on_compiler()
    said = capsys.readouterr().err
    assert said.startswith("training compiler: TIDEMILL_COMPILER_MAX_COST is 'soon'") and said.endswith(
        "runs without it\n"
    )
