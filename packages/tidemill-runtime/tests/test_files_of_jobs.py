"""What a job's files and output mean: lists of packages, saved models, records, the drivers of SDKs, standard error."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill_runtime import mpi_driver
from tidemill_runtime.code import COMMAND, PACKAGE, SCRIPT, EntryPoint
from tidemill_runtime.compiler import DEBUG, ENABLED, MAX_COST, compiler_variables, is_enabled
from tidemill_runtime.devices import Devices
from tidemill_runtime.environment import Environment
from tidemill_runtime.errors import ConfigurationError
from tidemill_runtime.layout import Layout
from tidemill_runtime.model_check import warnings_about
from tidemill_runtime.record_files import cause_of_corrupt_records
from tidemill_runtime.requirements import needed_by, report_needs
from tidemill_runtime.sdk_drivers import needed_sdk
from tidemill_runtime.tee import KEPT_BYTES, Tail

# --- packages -------------------------------------------------------------------------------------------------------
lines_of = st.lists(st.sampled_from(("", "   ", "# numpy", "  # a comment", "numpy", "numpy  # for x", "-r more.txt")))


@given(lines_of, st.sampled_from(("\n", "\r\n")), st.sampled_from((b"", b"# \xe9 of Latin-1\n")))
def test_packages_are_needed_if_a_line_has_more_than_a_comment(
    tmp_path_factory: Any, lines: list[str], end: str, before: bytes
) -> None:
    directory = tmp_path_factory.mktemp("code")
    file = directory / "requirements.txt"
    script, command, package = (EntryPoint("run", kind, directory) for kind in (SCRIPT, COMMAND, PACKAGE))
    assert needed_by(script) is None
    file.write_bytes(before + end.join(lines).encode())
    needed = any(line.strip() and not line.strip().startswith("#") for line in lines)
    assert needed_by(script) == (file if needed else None)
    assert needed_by(command) is None
    assert needed_by(package) == directory / "setup.py"


@pytest.mark.parametrize("path", [None, "/opt/ml/code/requirements.txt", "/ä/requirements.txt"])
def test_the_shim_gets_one_message_with_what_is_needed(path: str | None) -> None:
    read_fd, write_fd = os.pipe()
    report_needs({"TIDEMILL_NEEDS_FD": str(write_fd)}, None if path is None else Path(path))
    with os.fdopen(read_fd, "rb") as pipe:
        assert json.loads(pipe.read()) == ({} if path is None else {"requirements": path})
    report_needs({}, Path("/anything"))  # without a shim nobody listens


@pytest.mark.parametrize(
    ("version", "needed"),
    [
        ("2.251.1", True),
        ("3.0.0rc1", True),
        ("2.1.dev0", True),
        ("", False),
        ("2; rm -rf /", False),
        ("2.0\n-e .", False),
    ],
)
def test_a_remote_function_gets_the_version_of_the_sdk_that_serialized_it(
    tmp_path: Path, version: str, needed: bool
) -> None:
    layout = Layout(tmp_path)
    driver = str(layout.channel("sagemaker_remote_function_bootstrap") / "job_driver.sh")
    words = [driver, "--client_sagemaker_pysdk_version", version]
    file = needed_sdk(layout, words)
    assert (file is not None) == needed
    if file is not None:
        assert file.read_text() == f"sagemaker=={version}\n"
    assert needed_sdk(layout, words[1:]) is None, "another program"
    assert needed_sdk(layout, words[:1]) is None, "an old client names no version"


# --- models and records ---------------------------------------------------------------------------------------------
places = st.sampled_from(("1", "00012", "model", "v1", "1/variables", "export/3", "."))


@given(st.lists(st.tuples(places, st.sampled_from(("saved_model.pb", "saved_model.pbtxt", "weights.h5"))), max_size=4))
def test_a_model_is_servable_if_each_saved_model_is_in_a_version(
    tmp_path_factory: Any, files: list[tuple[str, str]]
) -> None:
    directory = tmp_path_factory.mktemp("model")
    for place, name in files:
        (directory / place).mkdir(parents=True, exist_ok=True)
        (directory / place / name).touch()
    saved = [place for place, name in files if name.startswith("saved_model")]
    odd = [place for place in saved if not place.rpartition("/")[2].isdigit()]
    warnings = warnings_about(directory)
    if not files:
        assert "nothing was saved" in warnings[0]
    elif not saved:
        assert "there is no SavedModel" in warnings[0]
    elif odd:
        assert any(repr(place) in warnings[0] for place in odd)
    else:
        assert warnings == []


@given(st.lists(st.sampled_from((b"", b"\x1f\x8b\x08rest", b"\x0a\x23\xd7\xcerest", b"plain", b"\x1f"))), st.booleans())
def test_the_first_file_of_another_format_explains_corrupt_records(
    tmp_path_factory: Any, contents: list[bytes], is_corrupt: bool
) -> None:
    channels = tmp_path_factory.mktemp("data")
    for number, content in enumerate(contents):
        (channels / f"{number:03}").write_bytes(content)
    text = "tensorflow...DataLossError: corrupted record at 0" if is_corrupt else "ValueError: no"
    told = cause_of_corrupt_records(text, channels=channels)
    first = next(
        (n for n, content in enumerate(contents) if content[:1] in (b"\x1f", b"\x0a") and len(content) > 1), None
    )
    if first is None or not is_corrupt:
        assert told == ""
    else:
        kind = "gzip" if contents[first].startswith(b"\x1f") else "RecordIO"
        assert told.startswith(f"{channels / f'{first:03}'} holds {kind}")


def test_a_real_file_of_gzip_is_recognized(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.tfrecord").write_bytes(gzip.compress(b"record"))
    assert 'compression_type="GZIP"' in cause_of_corrupt_records("DataLossError", channels=tmp_path)


# --- the driver of an SDK -------------------------------------------------------------------------------------------
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
)


@given(st.dictionaries(st.text(min_size=1, max_size=5), json_values, max_size=4))
def test_a_driver_passes_text_as_it_is_and_everything_else_as_json(values: dict[str, Any]) -> None:
    sent = {name: json.dumps(value) for name, value in values.items()}
    for given_ in (values, sent):
        arguments = mpi_driver._arguments(given_)
        assert arguments[::2] == [f"--{name}" for name in given_]
        for value, argument in zip(values.values(), arguments[1::2], strict=True):
            if not isinstance(value, str):
                assert json.loads(argument) == value
            elif given_ is sent:
                assert argument == value


@given(st.lists(st.sampled_from(("-x A=b c", "-x", "NAME=a b", "--bind-to core", "-np 2")), max_size=5))
def test_options_of_a_driver_are_words_and_values_of_their_own_items_keep_blanks(options: list[str]) -> None:
    words = mpi_driver._words(options)
    assert " ".join(words) == " ".join(options)
    assert [word for word in words if " " in word] == [each for each in options if not each.startswith("-")]


@pytest.mark.parametrize("text", [None, "", "{", "null", "[]", "3", '"text"'])
def test_what_a_driver_reads_is_a_json_object_or_refused_by_its_name(text: str | None) -> None:
    variables = {} if text is None else {"SM_HPS": text}
    with pytest.raises(ConfigurationError, match="SM_HPS of the SDK's sm_drivers is "):
        mpi_driver._read(variables, "SM_HPS")


@pytest.mark.parametrize("count", ["two", 1.5, -1])
def test_a_driver_refuses_a_number_of_ranks_that_is_none(tmp_path: Path, count: Any) -> None:
    variables = {
        "SAGEMAKER_BASE_DIR": str(tmp_path),
        "SM_DISTRIBUTED_CONFIG": json.dumps({"process_count_per_node": count}),
        "SM_HPS": "{}",
        "SM_ENTRY_SCRIPT": "train.py",
    }
    with pytest.raises(ConfigurationError, match="expected a whole number from 1"):
        mpi_driver._main("python", variables)


# --- output and switches --------------------------------------------------------------------------------------------
@settings(max_examples=50)
@given(st.lists(st.binary(max_size=50) | st.integers(0, KEPT_BYTES).map(lambda count: b"x" * count), max_size=6))
def test_the_end_of_the_output_is_kept_and_all_of_it_is_passed_on(pieces: list[bytes]) -> None:
    fd = os.memfd_create("output")
    tail = Tail(fd)
    for piece in pieces:
        tail.pass_on(piece)
    whole = b"".join(pieces)
    assert os.pread(fd, len(whole) + 1, 0) == whole
    assert tail.text() == whole[-KEPT_BYTES:].decode("utf-8", "replace")
    os.close(fd)


def test_a_reader_that_has_left_does_not_end_the_script() -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    tail = Tail(write_fd)
    for piece in (b"one", b"two"):
        tail.pass_on(piece)
    assert tail.text() == "onetwo"
    os.close(write_fd)


@given(st.sampled_from((True, "true", " True ", False, "false", None, 1, "yes")), st.sampled_from((True, None, "x")))
def test_the_compiler_is_on_if_the_job_says_true(tmp_path_factory: Any, enabled: Any, debug: Any) -> None:
    base = tmp_path_factory.mktemp("ml")
    (base / "input" / "config").mkdir(parents=True)
    given_ = {name: json.dumps(each) for name, each in ((ENABLED, enabled), (DEBUG, debug), (MAX_COST, 0.2))}
    (base / "input" / "config" / "hyperparameters.json").write_text(json.dumps(given_))
    found = Environment.read({"SAGEMAKER_BASE_DIR": str(base)}, devices=Devices(1, 0, 0))
    is_on = str(enabled).strip().lower() == "true"
    assert is_enabled(found.hyperparameters.framework) == is_on
    variables = compiler_variables(found)
    assert bool(variables) == is_on
    if is_on:
        assert variables.pop("TIDEMILL_COMPILER_REPORT") == str(base / "output" / "data" / "compiler")
        debugging = {"TIDEMILL_COMPILER_DEBUG": "1"} if debug is True else {}
        assert variables == {"TIDEMILL_COMPILER": "1", "TIDEMILL_COMPILER_MAX_COST": "0.2", **debugging}
