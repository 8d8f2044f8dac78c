"""What a user's job may hold, of any form: reports, hyperparameters, names, command lines. Nothing ends the runtime."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemill_runtime.code import find_entry_point
from tidemill_runtime.devices import Devices
from tidemill_runtime.environment import Environment
from tidemill_runtime.errors import ConfigurationError, EntryPointNotFound
from tidemill_runtime.failure import MAX_CHARACTERS, Problem, compose, describe_end, read_report
from tidemill_runtime.hyperparameters import RESERVED, as_arguments, decode
from tidemill_runtime.library_errors import TENSORFLOW_ERRORS, library_error_in
from tidemill_runtime.masking import MASK, is_secret_name, masked, masked_arguments
from tidemill_runtime.user_files import files_below
from tidemill_runtime.variables import encode, script_variables, sm_variables

ONE = Devices(num_cpus=2, num_gpus=0, num_neurons=0)
plain = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(allow_nan=False) | st.text(max_size=12)
values = st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))
names = st.text(st.characters(codec="ascii", categories=("L", "N", "Pd", "Pc")), min_size=1, max_size=12)
texts = st.text(max_size=300) | st.text("ab \n\"'\\", max_size=2000)


# --- reports of failures: the script can write them, too ------------------------------------------------------------
frames = st.fixed_dictionaries({"file": texts, "line": st.integers()}, optional={"function": texts, "text": texts})


@settings(max_examples=150)
@given(
    st.builds(
        Problem,
        kind=st.sampled_from(("", "ValueError", "tf.errors.NotFoundError", "K" * 900)),
        message=texts,
        frames=st.lists(frames, max_size=6).map(tuple),
        module=st.sampled_from(("", "builtins", "tensorflow.python.framework.errors_impl")),
        printed_error=st.sampled_from(("", *TENSORFLOW_ERRORS)),
        where=st.sampled_from(("", "rank 1 on algo-1")),
    ),
    st.integers(-64, 255),
    st.lists(texts, min_size=1, max_size=4),
)
def test_a_report_has_four_parts_and_room_for_the_platforms_prefix(
    problem: Problem, exit_code: int, command: list[str]
) -> None:
    text = compose(problem=problem, exit_code=exit_code, command=command)
    if "K" not in problem.kind or not problem.module.startswith("tensorflow"):
        assert len(text) <= MAX_CHARACTERS
    found = re.fullmatch(r'(\w+):\nExitCode (-?\d+)\nErrorMessage "(.*)"\nCommand "(.*)"', text, re.DOTALL)
    assert found is not None, text
    assert int(found[2]) == exit_code
    whole = " ".join(map(shlex.quote, command))
    assert found[4] == whole or found[4].endswith("...")
    if problem.printed_error and not problem.module.startswith("tensorflow"):
        assert found[1] == problem.printed_error


@settings(max_examples=150)
@given(
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("type", "message", "frames", "module", "keras", "owner", "attribute"), values)
    )
    | values,
    st.integers(-64, 255),
)
@example({"type": 5, "message": None, "frames": [], "module": None}, 1)
@example({"type": "E", "message": "m", "frames": [{}], "module": ""}, 1)
@example({"type": "E", "message": "m", "frames": ["no frame"], "module": ""}, 1)
@example({"type": "E", "message": "m", "frames": {"file": 1}, "module": ""}, 1)
@example({"type": "E", "message": "m", "frames": [{"file": 1, "line": None, "text": 7}], "module": ""}, 1)
def test_a_report_of_any_content_is_read_or_left_out(tmp_path_factory: Any, report: Any, exit_code: int) -> None:
    directory = tmp_path_factory.mktemp("reports")
    (directory / "7.json").write_text(json.dumps(report), encoding="utf-8")
    (directory / "8.json").write_bytes(b"\xff{")
    problem = describe_end(
        exit_code=exit_code, report=read_report(directory, pid=7), stderr_tail="Traceback (most recent call last):\n x"
    )
    assert compose(problem=problem, exit_code=exit_code, command=["python", "train.py"]).startswith(
        "ExecuteUserScriptError:\n"
    )


@settings(max_examples=100)
@given(
    st.lists(
        st.sampled_from(("Traceback (most recent call last):", '  File "a.py", line 1, in f', "    x = 1"))
        | st.text(max_size=20),
        max_size=8,
    )
)
def test_an_end_with_any_output_has_a_reason(lines: list[str]) -> None:
    problem = describe_end(exit_code=3, report=None, stderr_tail="\n".join(lines))
    assert problem.kind or problem.message
    shown = [line for line in lines if line.strip() and not line.startswith("tidemill: ")]
    if not shown:
        assert "wrote nothing to standard error" in problem.message


@pytest.mark.parametrize("name", TENSORFLOW_ERRORS)
@given(before=st.text(max_size=8), after=st.text(max_size=8))
@settings(max_examples=8)
def test_an_error_of_tensorflow_is_found_as_a_whole_word_alone(name: str, before: str, after: str) -> None:
    text = f"{before}{name}{after}"
    is_word = not re.search(r"\w$", before) and not re.match(r"\w", after)
    assert (library_error_in(text) == name) == is_word or library_error_in(f"{before} {after}") != ""


# --- secrets --------------------------------------------------------------------------------------------------------
secret_names = st.sampled_from(
    ("password", "db_password", "api-key", "apiKey", "APIKey", "HF_TOKEN", "aws_secret_access_key", "ssh_keys", "token")
)
open_names = st.sampled_from(("epochs", "max_tokens", "token_dim", "key", "keys_per_batch", "tokenizer", "public_key"))


@given(secret_names, open_names)
def test_a_name_denotes_a_secret_or_not_in_each_of_its_spellings(secret: str, other: str) -> None:
    for spelled in (str, str.upper, lambda name: f"--{name}", lambda name: f"my_{name}"):
        assert is_secret_name(spelled(secret)), spelled(secret)
    for spelled in (str, str.upper, lambda name: f"--{name}"):
        assert not is_secret_name(spelled(other)), spelled(other)


SECRET = "s3cr3t-Value"
secrets_inside = st.recursive(
    st.just(SECRET) | plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(secret_names | open_names, inner, max_size=3),
)


def without_secrets(value: Any) -> Any:
    """Return a value with the secret only below names that denote one."""
    if isinstance(value, dict):
        return {n: each if is_secret_name(n) else without_secrets(each) for n, each in value.items()}
    if isinstance(value, list):
        return [without_secrets(each) for each in value]
    return "" if value == SECRET else value


@given(st.dictionaries(secret_names | open_names, secrets_inside, max_size=4))
def test_no_secret_is_shown_however_deep_and_everything_else_is(given_: dict[str, Any]) -> None:
    cleaned = without_secrets(given_)
    shown = masked(cleaned)
    assert SECRET not in json.dumps(shown)
    assert shown.keys() == cleaned.keys()
    for name, value in cleaned.items():
        if is_secret_name(name):
            assert shown[name] == MASK
        elif not isinstance(value, dict | list):
            assert shown[name] == value


words = st.sampled_from(("--password", "--token=x", "--db-password", "--epochs", "-v", "train.py", "--token"))


@given(st.lists(words, max_size=6), secret_names, st.booleans())
@example(["--password"], "token", False)
def test_the_value_of_a_secret_option_is_masked_whatever_stands_before_it(
    before: list[str], name: str, joined: bool
) -> None:
    option = [f"--{name}={SECRET}"] if joined else [f"--{name}", SECRET]
    shown = masked_arguments([*before, *option, "--epochs", "3"])
    assert len(shown) == len(before) + len(option) + 2
    assert SECRET not in " ".join(shown)
    assert shown[-1] == "3"


# --- hyperparameters and variables ----------------------------------------------------------------------------------
@settings(max_examples=100)
@given(st.dictionaries(names, values, max_size=5))
def test_every_value_of_json_is_decoded_as_it_was_sent_and_becomes_one_argument(user: dict[str, Any]) -> None:
    user = {name: value for name, value in user.items() if not name.startswith("sagemaker_") and name not in RESERVED}
    decoded = decode({name: json.dumps(value) for name, value in user.items()})
    assert decoded.user == user
    assert not decoded.reserved and not decoded.framework
    if "\\u0000" not in json.dumps(user) and not re.search(r"\\ud[89a-f]", json.dumps(user)):
        arguments = as_arguments(decoded.user)
        assert list(arguments[::2]) == [("-" if len(name) == 1 else "--") + name for name in sorted(user)]
        texts_of = dict(zip(sorted(user), arguments[1::2], strict=True))
        for name, value in user.items():
            if isinstance(value, str):
                assert texts_of[name] == value
            elif isinstance(value, int | float):
                assert type(value)(texts_of[name] if not isinstance(value, bool) else value) == value


@given(values)
def test_the_text_of_a_variable_is_the_string_itself_or_json_of_the_value(value: Any) -> None:
    text = encode(value)
    if value is None or isinstance(value, str):
        assert text == (value or "")
    else:
        assert json.loads(text) == value
        assert "\n" not in text and text.isascii()


def environment(base: Path, hyperparameters: dict[str, str], **variables: str) -> Environment:
    (base / "input" / "config").mkdir(parents=True, exist_ok=True)
    (base / "input" / "config" / "hyperparameters.json").write_text(json.dumps(hyperparameters))
    return Environment.read({"SAGEMAKER_BASE_DIR": str(base), **variables}, devices=ONE)


@settings(max_examples=60)
@given(st.dictionaries(names, values.map(json.dumps) | st.text(max_size=8), max_size=4), names, names)
@example({}, "2024", "1")
@example({}, "null", "true")
@example({"a=b": "1"}, "a", "b")
def test_the_environment_of_a_script_is_text_whatever_the_hyperparameters(
    tmp_path_factory: Any, user: dict[str, str], job_name: str, region: str
) -> None:
    given_ = {**user, "sagemaker_job_name": job_name, "sagemaker_region": region, "sagemaker_program": "3"}
    found = environment(tmp_path_factory.mktemp("ml"), given_, TRAINING_JOB_NAME="other")
    try:
        variables = script_variables(found, {"PATH": "/bin"}, prefixes=["/env"])
    except ConfigurationError as error:
        assert "NUL character" in str(error)
        return
    assert all(isinstance(value, str) and "=" not in name for name, value in variables.items())
    assert variables["SAGEMAKER_JOB_NAME"] == ("other" if job_name == "null" else str(json_or_text(job_name)))
    assert variables["SM_USER_ENTRY_POINT"] == "3"
    assert json.loads(variables["SM_HPS"]) == found.hyperparameters.user
    shared = {name for name in found.hyperparameters.user if "=" not in name}
    assert {f"SM_HP_{name.upper()}" for name in shared} <= variables.keys()
    assert json.loads(sm_variables(found)["SM_TRAINING_ENV"])["hyperparameters"] == found.hyperparameters.user


def json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


# --- names of files -------------------------------------------------------------------------------------------------
@settings(max_examples=100)
@given(
    st.text(max_size=10) | st.sampled_from(("../train.py", "/etc/passwd", "-c", "a/../b", "pkg", "out", "fifo", "a\n"))
)
def test_only_a_file_of_the_code_is_an_entry_point_and_others_are_refused_with_what_is_there(
    tmp_path_factory: Any, name: str
) -> None:
    directory = tmp_path_factory.mktemp("code")
    (directory / "train.py").write_text("")
    (directory / "pkg").mkdir()
    (directory / "out").symlink_to("/etc/passwd")
    os.mkfifo(directory / "fifo")
    with pytest.raises(EntryPointNotFound, match=r"What is there: fifo, out, pkg/, train\.py$"):
        find_entry_point(directory, name)
    assert find_entry_point(directory, "train.py").kind == "script"


def test_files_are_found_below_any_tree_and_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(60):
        deep = deep / ("d" * 10)
    deep.mkdir(parents=True)
    (deep / "model.pb").write_text("")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_text("")
    (tmp_path / "a" / "link").symlink_to("file")
    (tmp_path / "a" / "broken").symlink_to("nothing")
    (tmp_path / "a" / "up").symlink_to("..")
    os.mkfifo(tmp_path / "a" / "fifo")
    found = [path.relative_to(tmp_path).as_posix() for path in files_below(tmp_path)]
    assert found[:2] == ["a/file", "a/link"]
    assert len(found) == 3 and found[2].endswith("/model.pb")
    assert list(files_below(tmp_path / "missing")) == list(files_below(tmp_path / "a" / "file")) == []
