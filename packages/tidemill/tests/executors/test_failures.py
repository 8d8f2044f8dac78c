"""The texts of FailureReason."""

import errno

import pytest

from tidemill.shim.failures import (
    AlgorithmFailure,
    ClientFailure,
    InternalFailure,
    algorithm_reason,
    ended_reason,
    of_os_error,
)


def report(message: str) -> str:
    return f'ExecuteUserScriptError:\nExitCode 1\nErrorMessage "{message}"\nCommand "python -- train.py"'


def test_a_short_report_stays_as_it_is():
    assert str(algorithm_reason(report("ValueError: x"))) == "AlgorithmError: " + report("ValueError: x")


def test_of_a_long_report_the_message_is_cut_and_the_command_stays():
    reason = str(algorithm_reason(report("x" * 5000)))
    assert len(reason) == 1024
    assert reason.endswith('x..."\nCommand "python -- train.py"')


def test_a_report_of_another_form_is_cut_at_its_end():
    reason = str(algorithm_reason("y" * 5000))
    assert len(reason) == 1024
    assert reason.endswith("y...")


@pytest.mark.parametrize("code", [137, -9])
def test_death_by_sigkill_is_called_out_of_memory_only_if_the_kernel_says_so(code):
    text = report("Process killed by SIGKILL (signal 9)").replace("ExitCode 1", f"ExitCode {code}")
    assert str(algorithm_reason(text)) == f"AlgorithmError: {text}"
    named = text.replace("Process killed", "OutOfMemory: Process killed")
    assert str(algorithm_reason(text, out_of_memory=True)) == f"AlgorithmError: {named}"
    assert str(algorithm_reason(named, out_of_memory=True)) == f"AlgorithmError: {named}"
    own = f"ExitCode {code}"
    assert str(algorithm_reason(own, out_of_memory=True)).endswith(
        "\nOutOfMemory: Process killed by SIGKILL (signal 9)"
    )


def test_another_end_is_not_called_out_of_memory_although_the_kernel_has_killed_a_child():
    assert "OutOfMemory" not in str(algorithm_reason(report("ValueError: x"), out_of_memory=True))


def test_a_process_without_a_report_is_described_by_the_end_of_its_output():
    reason = ended_reason(1, stderr_tail="Segmentation\n", command="train", peak_rss_bytes=0)
    assert isinstance(reason, AlgorithmFailure)
    assert 'ErrorMessage "Segmentation"' in str(reason)


@pytest.mark.parametrize("line", ["bwrap: No permissions", "tidemill-sandbox: unshare: Operation not permitted"])
def test_a_sandbox_that_fails_is_our_fault(line):
    reason = ended_reason(1, stderr_tail=line + "\n", command="train", peak_rss_bytes=0)
    assert isinstance(reason, InternalFailure)
    assert line in str(reason)


def test_a_full_disk_is_a_client_error_and_other_causes_are_internal_errors():
    full = of_os_error(OSError(errno.ENOSPC, "no space"), place="/opt/ml/model")
    assert isinstance(full, ClientFailure)
    assert str(full).startswith("ClientError: no space left on device: /opt/ml/model")
    assert isinstance(of_os_error(OSError(errno.EIO, "I/O error"), place="x"), InternalFailure)
