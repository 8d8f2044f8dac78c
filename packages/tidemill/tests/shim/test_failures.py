"""The length of a FailureReason: 1,024 characters with its prefix, and the command of a report survives the cut."""

import pytest

from tidemill.shim.failures import ClientFailure, algorithm_reason

LIMIT = 1024


@pytest.mark.parametrize("spare", [-1, 0, 1, 5000])
def test_a_reason_is_cut_at_1024_characters_with_its_prefix(spare: int) -> None:
    text = "x" * (LIMIT - len("ClientError: ") + spare)
    reason = str(ClientFailure(text))
    assert len(reason) == min(LIMIT, LIMIT + spare)
    assert reason.endswith("x..." if spare > 0 else "xxxx")
    assert ClientFailure(text).reason == text


@pytest.mark.parametrize("spare", [0, 1, 5000])
def test_a_long_report_keeps_its_head_and_its_command(spare: int) -> None:
    head, tail = 'ExecuteUserScriptError:\nExitCode 1\nErrorMessage "', '"\nCommand "python train.py"'
    message = "m" * (LIMIT - len("AlgorithmError: ") - len(head) - len(tail) + spare)
    reason = str(algorithm_reason(f"{head}{message}{tail}"))
    assert len(reason) == LIMIT
    assert reason.startswith(f"AlgorithmError: {head}mmm")
    assert reason.endswith(f"{'...' if spare else 'mmm'}{tail}")
