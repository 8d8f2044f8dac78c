"""Whole jobs: files of the contract, signals, bytes, arguments."""

import json
import subprocess
import tarfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemill_runtime.hyperparameters import RESERVED

PRINT_ARGUMENTS = "import json, os, sys; print(json.dumps([sys.argv[1:], os.getcwd(), sys.path[0]]))"


def test_a_script_that_succeeds_leaves_an_empty_success(job):
    job.script("import os; open(os.environ['SM_MODEL_DIR'] + '/w', 'w')")
    result = job.run()
    assert result.returncode == 0
    assert (job.base / "output" / "success").read_bytes() == b""
    assert not (job.base / "output" / "failure").exists()
    events = [line.split()[1] for line in result.stderr.decode().splitlines()]
    assert events == ["script.started", "script.ended", "model.warning"]


ENDS = {
    "exit status": ("import sys; sys.exit(3)", "ExitCode 3", ""),
    "exit with text": ("import sys; sys.exit('no data')", "ExitCode 1", 'ErrorMessage "no data"'),
    "exception": ("raise ValueError('bad')", "ExitCode 1", 'ErrorMessage "ValueError: bad\n  File "'),
    "os._exit": ("import os; os.write(2, b'last'); os._exit(4)", "ExitCode 4", 'ErrorMessage "last"'),
    "killed": (
        "import os; os.kill(os.getpid(), 9)",
        "ExitCode -9",
        'ErrorMessage "Process killed by SIGKILL (signal 9)"',
    ),
    "137": ("import os; os._exit(137)", "ExitCode 137", 'ErrorMessage "Process killed by SIGKILL (signal 9)"'),
    "crash": ("import os; os.kill(os.getpid(), 11)", "ExitCode -11", "Process killed by SIGSEGV (signal 11)"),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_failed_script_has_a_failure_reason(job, name):
    source, code, text = ENDS[name]
    job.script(source)
    assert job.run().returncode == 1
    lines = job.failure.splitlines()
    assert lines[:2] == ["ExecuteUserScriptError:", code]
    assert text in job.failure
    assert lines[-1] == f'Command "{job.python} -- train.py"'


PRINTED = "tensorflow.python.framework.errors_impl."
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\n    f()\n'
CHILD = "import subprocess, sys\nsubprocess.check_call([sys.executable, '-S', '-c', {!r}])"
# Text on standard error, how the script ends, and the head of its report by sagemaker-training 5.1.4 with an importable
# TensorFlow 2.21.
PRINTED_ERRORS = {
    "tensorflow, sys.exit": (
        TRACEBACK + PRINTED + "ResourceExhaustedError: OOM",
        "sys.exit(1)",
        "ResourceExhaustedError",
    ),
    "tensorflow, os._exit": (TRACEBACK + PRINTED + "InvalidArgumentError: x", "os._exit(3)", "InvalidArgumentError"),
    "tensorflow, abort": (TRACEBACK + PRINTED + "InternalError: x", "os.abort()", "InternalError"),
    "tensorflow, killed": (
        TRACEBACK + PRINTED + "ResourceExhaustedError: x",
        "os.kill(os.getpid(), 9)",
        "ResourceExhaustedError",
    ),
    "tensorflow, 137": (TRACEBACK + PRINTED + "DataLossError: x", "os._exit(137)", "DataLossError"),
    "tensorflow, 128 lines earlier": (
        PRINTED + "UnknownError: x\n" + "later\n" * 128,
        "sys.exit(1)",
        "UnknownError",
    ),
    "no module": ("caught InvalidArgumentError, go on", "sys.exit(2)", "InvalidArgumentError"),
    "several, the first of the alphabet": (
        PRINTED + "OutOfRangeError: end\n" + TRACEBACK + PRINTED + "AbortedError: x",
        "sys.exit(1)",
        "AbortedError",
    ),
    "several, the other way around": (
        PRINTED + "AbortedError: x\n" + TRACEBACK + PRINTED + "OutOfRangeError: end",
        "sys.exit(1)",
        "AbortedError",
    ),
    "printed before another is raised": (
        PRINTED + "OutOfRangeError: end",
        "raise ValueError('bad')",
        "OutOfRangeError",
    ),
    "compiled": (TRACEBACK + "jaxlib.xla_extension.XlaRuntimeError: x", "sys.exit(1)", "XlaRuntimeError"),
    "asyncio": (TRACEBACK + "asyncio.exceptions.CancelledError", "sys.exit(1)", "CancelledError"),
    "python": (TRACEBACK + "ValueError: bad", "sys.exit(1)", "ExecuteUserScriptError"),
    "import": (TRACEBACK + "ImportError: cannot import name 'x'", "sys.exit(1)", "ExecuteUserScriptError"),
    "the toolkit's own": (TRACEBACK + "InstallRequirementsError: x", "sys.exit(1)", "ExecuteUserScriptError"),
    "a module that is missing, the toolkit's own": (
        TRACEBACK + "sagemaker_training.errors.ImportModuleError: x",
        "sys.exit(1)",
        "ExecuteUserScriptError",
    ),
    "a status, no class": ("RESOURCE_EXHAUSTED: OOM", "sys.exit(1)", "ExecuteUserScriptError"),
    "nothing": ("", "sys.exit(1)", "ExecuteUserScriptError"),
}


def printing(text: str, end: str) -> str:
    return f"import os, sys\nsys.stderr.write({text + chr(10)!r})\nsys.stderr.flush()\n{end}"


@pytest.mark.parametrize("through", ["the script", "a child of the script"])
@pytest.mark.parametrize("case", PRINTED_ERRORS)
def test_the_head_of_an_error_that_is_only_printed_is_the_toolkits(job, case, through):
    text, end, head = PRINTED_ERRORS[case]
    source = printing(text, end)
    job.script(source if through == "the script" else CHILD.format(source))
    assert job.run().returncode == 1
    assert job.failure.splitlines()[0] == f"{head}:"


@pytest.mark.parametrize("name", ["FileNotFoundError", "ModuleNotFoundError", "ConnectionAbortedError"])
def test_a_name_that_only_ends_in_that_of_a_library_error_is_not_one(job, name):
    """The toolkit compares substrings, and reports NotFoundError and AbortedError here."""
    job.script(printing(TRACEBACK + name + ": x", "sys.exit(1)"))
    job.run()
    assert job.failure.splitlines()[0] == "ExecuteUserScriptError:"


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("horovod.common.exceptions.HorovodInternalError: x", "HorovodInternalError"),
        ("smdistributed.modelparallel.backend.exceptions.SMPUsageError: x", "SMPUsageError"),
        ("[1,0]<stderr>:smdistributed.modelparallel.backend.exceptions.SMPUsageError", "SMPUsageError"),
    ],
)
def test_a_printed_error_of_horovod_or_smp_heads_the_report_as_a_raised_one_does(job, text, head):
    job.script(printing(TRACEBACK + text, "sys.exit(1)"))
    job.run()
    assert job.failure.splitlines()[0] == f"{head}:"


def test_the_message_stays_that_of_the_exception_when_a_printed_error_heads_the_report(job):
    job.script(printing(PRINTED + "OutOfRangeError: end", "raise ValueError('bad')"))
    job.run()
    assert job.failure.startswith('OutOfRangeError:\nExitCode 1\nErrorMessage "ValueError: bad\n  File "')


def test_a_huge_message_fits_into_1024_characters_with_its_end(job):
    job.script("def f():\n    raise ValueError('x' * 9000)\nf()")
    job.run()
    assert len("AlgorithmError: " + job.failure) <= 1024
    assert "ValueError: xxx" in job.failure and "line 2, in f" in job.failure


def test_a_failure_that_the_script_writes_stays(job):
    job.script("import os; open(os.environ['SM_OUTPUT_DIR'] + '/failure', 'w').write('mine'); raise ValueError")
    assert job.run().returncode == 1
    assert job.failure == "mine"


def test_output_is_passed_unchanged_even_if_it_is_not_text(job):
    job.script(r"""
        import os
        os.write(1, b"\xff\xfe out\r\n\x00")
        os.write(2, b"\xff\xfe err\r\n\x00 no end")
        os._exit(5)
    """)
    result = job.run()
    assert result.stdout == b"\xff\xfe out\r\n\x00"
    assert b"\xff\xfe err\r\n\x00 no end" in result.stderr
    assert "err" in job.failure


def test_much_output_on_both_streams_does_not_hang(job):
    job.script("import os\nfor fd in (1, 2):\n    [os.write(fd, b'x' * 65536) for _ in range(64)]")
    result = job.run()
    assert len(result.stdout) == 4 << 20
    assert result.stderr.count(b"x") >= 4 << 20


def test_the_script_runs_in_the_code_directory_which_leads_its_path(job):
    job.script(PRINT_ARGUMENTS)
    job.hyperparameters(**{"batch-size": "64", "e": "3", "n": "null"})
    arguments, directory, first = json.loads(job.run().stdout)
    assert arguments == ["--batch-size", "64", "-e", "3", "-n", ""]
    assert directory == first == str(job.base / "code")


@pytest.mark.parametrize("value", ["; touch x", "$(id)", "`id`", "a\nb", "--", "-x", "*", "\\", "'\"", "é漢🌊"])
def test_values_are_never_interpreted_as_code(job, value):
    job.script(PRINT_ARGUMENTS)
    job.hyperparameters(a=json.dumps(value), b=value)
    assert json.loads(job.run().stdout)[0] == ["-a", value, "-b", value]
    assert [path.name for path in (job.base / "code").iterdir()] == ["train.py"]


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8"])
def test_values_arrive_unchanged_in_every_locale(job, locale):
    job.script("import sys; sys.stdout.buffer.write(sys.argv[2].encode('utf-8', 'surrogateescape'))")
    job.hyperparameters(a='"漢字"')
    job.variables.update(LC_ALL=locale, LANG=locale)
    assert job.run().stdout.decode() == "漢字"


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=200)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(values=st.dictionaries(TEXTS, TEXTS, max_size=20))
def test_any_text_arrives_as_one_unchanged_argument(job, values):
    job.script("import json, sys; print(json.dumps(sys.argv[1:]))")
    job.config("hyperparameters", {name: json.dumps(value) for name, value in values.items()})
    job.variables["SAGEMAKER_PROGRAM"] = "train.py"
    user = {name: value for name, value in values.items() if name not in RESERVED and name[:10] != "sagemaker_"}
    expected = [part for name in sorted(user) for part in (f"{'-' if len(name) == 1 else '--'}{name}", user[name])]
    assert json.loads(job.run().stdout) == expected


def test_too_many_arguments_are_a_clear_error(job):
    job.script("pass")
    job.hyperparameters(**{f"p{number}": "x" * 1000 for number in range(1000)})
    assert job.run().returncode == 1
    assert job.failure.startswith("LaunchError: E2BIG: the script's arguments take 10")
    assert "in a channel" in job.failure


def test_a_missing_entry_point_is_the_failure(job):
    job.script("pass")
    job.hyperparameters(sagemaker_program="other.py")
    assert job.run().returncode == 1
    assert job.failure.startswith("EntryPointNotFound: entry point 'other.py' not found in sourcedir: ")
    assert job.failure.endswith("What is there: train.py")


def test_a_hostile_archive_is_the_failure_with_its_uri(job):
    submitted = job.base / ".tidemill" / "sourcedir.tar.gz"
    submitted.parent.mkdir()
    with tarfile.open(submitted, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("../x"))
    job.hyperparameters(sagemaker_submit_directory="s3://b/k/sourcedir.tar.gz")
    assert job.run().returncode == 1
    assert job.failure == "InvalidArchive: s3://b/k/sourcedir.tar.gz: member '../x' leaves the directory"


def test_a_shell_command_runs_without_a_shell_around_it(job):
    job.hyperparameters(sagemaker_program="run.sh", a='"x  $HOME"')
    job.code("run.sh", '#!/bin/sh\nprintf "%s|" "$0" "$@"\n')
    assert job.run().stdout == b"./run.sh|-a|x  $HOME|"
    job.code("run.sh", 'printf "%s|" "$@"\n')  # no `#!` line names an interpreter
    assert job.run().stdout == b"-a|x  $HOME|"


def test_a_container_entry_point_runs_with_the_same_variables(job):
    environment = job.own_environment()
    job.config("hyperparameters", {"epochs": "3"})
    result = job.run(
        "--", "sh", "-c", 'echo "$SM_HP_EPOCHS $1"; python -c "import sys; print(sys.prefix)"', "sh", "a b"
    )
    assert result.returncode == 0, result.stderr
    first, prefix = result.stdout.decode().splitlines()
    assert first == "3 a b"
    assert prefix == str(environment)


def test_a_container_entry_point_may_bring_options(job):
    result = job.run("--", "printf", "%s|", "--max-bytes", "-x", "--", "--")
    assert result.stdout == b"--max-bytes|-x|--|--|"


def test_a_missing_command_is_named(job):
    assert job.run("--", "no-such-command").returncode == 1
    assert job.failure.startswith("LaunchError: cannot start 'no-such-command'")


def test_an_unsupported_distribution_is_refused(job):
    job.script("pass")
    job.hyperparameters(sagemaker_distributed_dataparallel_enabled="true")
    assert job.run().returncode == 1
    assert "sagemaker_distributed_dataparallel_enabled" in job.failure


def test_parameter_servers_are_ignored_on_one_instance(job):
    job.script("import os, sys; sys.exit('TF_CONFIG' in os.environ)")
    job.hyperparameters(sagemaker_parameter_server_enabled="true")
    ended = job.run()
    assert ended.returncode == 0
    assert b"parameter_server.started" not in ended.stderr


@pytest.mark.parametrize(
    ("file", "warning"),
    [
        ("", "nothing was saved under"),
        ("weights.h5", "there is no SavedModel under"),
        ("export/saved_model.pb", "is not in a directory named by a version number"),
        ("saved_model.pb", "is not in a directory named by a version number"),
        ("1/saved_model.pb", ""),
        ("name/00000123/saved_model.pbtxt", ""),
    ],
)
def test_an_incomplete_model_directory_is_only_a_warning(job, file, warning):
    job.script(f"""
        import os, pathlib
        path = pathlib.Path(os.environ["SM_MODEL_DIR"]) / {file!r}
        if {file!r}:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    """)
    result = job.run()
    assert result.returncode == 0
    lines = [line for line in result.stderr.decode().splitlines() if "model.warning" in line]
    assert bool(lines) == bool(warning)
    assert not warning or warning in lines[0]


def test_a_user_module_with_the_name_of_a_runtime_module_is_harmless(job):
    job.script("print('ran')")
    job.code("json.py", "raise RuntimeError('not this one')")
    with subprocess.Popen(job.command, env=job.environment, cwd=job.base / "code", stdout=subprocess.PIPE) as process:
        output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, b"ran\n")
