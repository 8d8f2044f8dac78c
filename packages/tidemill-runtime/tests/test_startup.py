"""The module that runs at interpreter start, and uncaught exceptions."""

import json
import subprocess
import textwrap

import pytest


@pytest.fixture
def run(tmp_path, job_python):
    def run(source, *, reports=True):
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(source))
        directory = tmp_path / "reports"
        directory.mkdir(exist_ok=True)
        variables = {"TIDEMILL_REPORTS": str(directory)} if reports else {}
        with subprocess.Popen(
            [job_python, "--", "train.py"], cwd=tmp_path, env=variables, stderr=subprocess.PIPE, text=True
        ) as process:
            _, errors = process.communicate(timeout=60)
        path = directory / f"{process.pid}.json"
        return json.loads(path.read_text()) if path.exists() else None, errors

    return run


FAILING = """
    import json
    class Mine(ValueError):
        pass
    def inner():
        json.loads("{")
    def outer():
        try:
            inner()
        except ValueError as error:
            raise Mine("bad ü thing") from error
    outer()
"""


def test_an_uncaught_exception_is_reported_with_the_users_frames(run):
    report, _ = run(FAILING)
    assert (report["type"], report["module"], report["message"]) == ("Mine", "__main__", "bad ü thing")
    assert [(frame["function"], frame["line"]) for frame in report["frames"]] == [("<module>", 12), ("outer", 11)]
    assert report["frames"][-1]["text"] == 'raise Mine("bad ü thing") from error'


def test_frames_of_libraries_are_left_out(run):
    report, _ = run('import json\ndef load():\n    return json.loads("{")\nload()')
    assert report["type"] == "JSONDecodeError"
    assert [frame["function"] for frame in report["frames"]] == ["<module>", "load"]


def test_the_traceback_that_the_user_sees_is_unchanged(run):
    _, with_reports = run(FAILING)
    _, without = run(FAILING, reports=False)
    assert with_reports == without and "Mine: bad" in without


def test_a_syntax_error_has_its_place(run):
    report, _ = run("x = (\n")
    assert report["type"] == "SyntaxError"
    assert report["frames"][-1]["file"].endswith("train.py")


def test_an_exception_whose_str_fails_is_still_reported(run):
    report, errors = run("""
        class Odd(Exception):
            def __str__(self):
                raise ValueError("no text")
        raise Odd
    """)
    assert report["type"] == "Odd"
    assert "Odd: <exception str() failed>" in errors


def test_system_exit_writes_no_report(run):
    assert run("raise SystemExit('bye')") == (None, "bye\n")


def test_interpreter_start_loads_nothing_but_the_module(job_python):
    def loaded(source, **variables):
        command = [job_python, "-c", f"import sys; {source}print(sorted(sys.modules))"]
        return set(json.loads(subprocess.check_output(command, env=variables, text=True).replace("'", '"')))

    without = loaded("", TIDEMILL_REPORTS="")
    assert loaded("", TIDEMILL_REPORTS="/tmp") == without
    assert {name for name in without if name.startswith("tidemill")} == {"tidemill_runtime", "tidemill_runtime.startup"}
