"""The four lines of a report, and how they are shortened."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_runtime._shared.trees import remove_tree
from tidemill_runtime.failure import Problem, compose, describe_end, read_report, write
from tidemill_runtime.record_files import cause_of_corrupt_records

FRAMES = tuple(
    {"file": f"/opt/ml/code/{name}.py", "line": 3, "function": name, "text": f"call({name})"} for name in "abc"
)


def test_the_form_has_head_code_message_and_command():
    text = compose(problem=Problem("ValueError", "bad", FRAMES[:1]), exit_code=1, command=["python", "a b"])
    assert text == (
        "ExecuteUserScriptError:\n"
        "ExitCode 1\n"
        'ErrorMessage "ValueError: bad\n'
        '  File "/opt/ml/code/a.py", line 3, in a\n'
        '    call(a)"\n'
        "Command \"python 'a b'\""
    )


def test_exceptions_of_known_libraries_replace_the_head():
    problem = Problem("ResourceExhaustedError", "OOM", (), "tensorflow.python.framework.errors_impl")
    assert compose(problem=problem, exit_code=1, command=["x"]).startswith("ResourceExhaustedError:\nExitCode 1\n")


def test_the_outermost_frames_go_first_and_type_and_innermost_frame_stay():
    problem = Problem("ValueError", "m" * 5000, FRAMES)
    text = compose(problem=problem, exit_code=1, command=["python", "c" * 5000])
    assert len(text) == 1008
    assert "ValueError: mmm" in text and "call(c)" in text and "call(a)" not in text
    assert text.endswith('..."')


@given(st.text(max_size=3000), st.text(max_size=3000), st.integers(0, 30), st.text(max_size=2000))
def test_everything_stays_within_1024_characters_with_the_prefix(kind, message, depth, argument):
    frame = {"file": argument, "line": 1, "function": kind, "text": message}
    text = compose(problem=Problem(kind, message, (frame,) * depth), exit_code=-9, command=["python", argument])
    assert len("AlgorithmError: " + text) <= 1024
    lines = text.split("\n")
    assert lines[1] == "ExitCode -9"
    assert '\nCommand "' in text


def test_sigkill_and_137_are_named_and_not_taken_for_a_lack_of_memory():
    for exit_code in (137, -9):
        problem = describe_end(exit_code=exit_code, report=None, stderr_tail="last words\n")
        assert problem.message == "Process killed by SIGKILL (signal 9)\nlast words"


def test_other_signals_are_named():
    problem = describe_end(exit_code=-11, report=None, stderr_tail="")
    assert problem.message == "Process killed by SIGSEGV (signal 11)"
    assert "signal 63" in describe_end(exit_code=-63, report=None, stderr_tail="").message


def test_a_report_has_priority_over_the_tail():
    report = Problem("ValueError", "bad")
    assert describe_end(exit_code=1, report=report, stderr_tail="noise") is report


def test_without_a_report_the_last_traceback_is_read():
    tail = (
        'Traceback (most recent call last):\n  File "old.py", line 1, in f\nOldError: x\nnoise\n'
        "Traceback (most recent call last):\n"
        '  File "/opt/ml/code/train.py", line 7, in <module>\n    main()\n    ^^^^^^\n'
        '  File "/env/lib/python3.11/site-packages/keras/x.py", line 9, in fit\n    raise\n'
        "pkg.MyError: two\nlines\n"
    )
    problem = describe_end(exit_code=1, report=None, stderr_tail=tail)
    assert (problem.kind, problem.message) == ("pkg.MyError", "two\nlines")
    assert [(frame["file"], frame["text"]) for frame in problem.frames] == [("/opt/ml/code/train.py", "main()")]


def test_without_a_traceback_the_last_lines_are_shown():
    tail = "\n".join(f"line {number}" for number in range(30)) + "\ntidemill: script.started command=[]\n\n"
    problem = describe_end(exit_code=3, report=None, stderr_tail=tail)
    assert problem.message.splitlines() == [f"line {number}" for number in range(22, 30)]


@pytest.mark.parametrize("module", ["horovod", "horovod.tensorflow", "smdistributed.modelparallel"])
def test_a_module_that_old_environments_lack_is_refused_by_name(module):
    report = Problem("ModuleNotFoundError", f"No module named '{module}'", module="builtins")
    message = describe_end(exit_code=1, report=report, stderr_tail="").message
    assert message.startswith(f"No module named '{module}' ({module.partition('.')[0]} is part of")
    assert "framework_version" in message
    other = Problem("ModuleNotFoundError", "No module named 'horovodx'", module="builtins")
    assert describe_end(exit_code=1, report=other, stderr_tail="") == other


def test_a_script_that_exits_without_output_gets_a_reason():
    problem = describe_end(exit_code=3, report=None, stderr_tail="tidemill: script.started command=[]\n")
    text = compose(problem=problem, exit_code=3, command=["python", "train.py"])
    assert text.startswith('ExecuteUserScriptError:\nExitCode 3\nErrorMessage "the script ended with exit code 3 and')
    assert "sys.exit(3)" in text


def test_the_report_of_the_scripts_own_process_is_preferred(tmp_path):
    def put(pid, kind):
        report = {"type": kind, "module": "m", "message": "x", "frames": []}
        (tmp_path / f"{pid}.json").write_text(json.dumps(report))

    assert read_report(tmp_path, pid=1) is None
    put(1, "Own")
    put(2, "Childs")
    assert read_report(tmp_path, pid=1).kind == "Own"
    assert read_report(tmp_path, pid=7).kind == "Childs"
    (tmp_path / "7.json").write_text("{torn")
    assert read_report(tmp_path, pid=7).kind == "Childs"


@pytest.mark.parametrize(
    "text", ["[]", "null", '"text"', "{}", '{"type": "E", "message": "x", "frames": 3, "module": "m"}', "[" * 9999]
)
def test_a_file_that_is_no_report_is_passed_over(tmp_path, text):
    """The script can write to the directory, too."""
    (tmp_path / "7.json").write_text(text)
    assert read_report(tmp_path, pid=7) is None
    (tmp_path / "1.json").write_text(json.dumps({"type": "Childs", "module": "m", "message": "x", "frames": []}))
    assert read_report(tmp_path, pid=7).kind == "Childs"


def test_a_failure_written_by_the_script_is_left_untouched(tmp_path):
    path = tmp_path / "output" / "failure"
    write(path, "ours")
    write(path, "second")
    assert path.read_text() == "ours"


def test_a_file_that_is_not_tfrecord_is_named(tmp_path):
    error = "DataLossError: corrupted record at 0 [Op:IteratorGetNext]"
    good, bad = tmp_path / "train" / "a.tfrecord", tmp_path / "train" / "b"
    good.parent.mkdir()
    good.write_bytes(b"\x05\0\0\0\0\0\0\0")
    assert cause_of_corrupt_records(error, channels=tmp_path) == ""
    deepest = tmp_path / "train"
    for _ in range(1500):
        deepest /= "d"
        deepest.mkdir()
    bad.write_bytes(gzip.compress(b"records"))
    assert cause_of_corrupt_records("ValueError: something else", channels=tmp_path) == ""
    assert cause_of_corrupt_records(error, channels=tmp_path).startswith(f"{bad} holds gzip")
    bad.write_bytes(b"\x0a\x23\xd7\xce rest")
    remove_tree(tmp_path / "train/d")  # pytest could not
    assert "holds RecordIO" in cause_of_corrupt_records(error, channels=tmp_path)
    assert cause_of_corrupt_records(error, channels=tmp_path / "none") == ""
