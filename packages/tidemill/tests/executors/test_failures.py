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
    assert str(algorithm_reason(report("ValueError: x"), peak_rss_bytes=0)) == "AlgorithmError: " + report(
        "ValueError: x"
    )


def test_of_a_long_report_the_message_is_cut_and_the_command_stays():
    reason = str(algorithm_reason(report("x" * 5000), peak_rss_bytes=0))
    assert len(reason) == 1024
    assert reason.endswith('x..."\nCommand "python -- train.py"')


def test_a_report_of_another_form_is_cut_at_its_end():
    reason = str(algorithm_reason("y" * 5000, peak_rss_bytes=0))
    assert len(reason) == 1024
    assert reason.endswith("y...")


@pytest.mark.parametrize("code", [137, -9])
def test_death_by_sigkill_is_named_with_the_peak_memory(code):
    text = f'ExecuteUserScriptError:\nExitCode {code}\nErrorMessage ""\nCommand "python"'
    assert str(algorithm_reason(text, peak_rss_bytes=300 << 20)).endswith("its peak memory was 300 MiB")


def test_a_note_that_is_there_already_is_not_doubled():
    text = "ExecuteUserScriptError:\nExitCode 137\nOutOfMemory: Process killed by SIGKILL (signal 9)"
    assert str(algorithm_reason(text, peak_rss_bytes=1)).count("OutOfMemory") == 1


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
