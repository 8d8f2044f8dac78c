"""What jobs without a log of their own say when they are asked for it."""

from types import SimpleNamespace

import pytest

from tidemill.sdk.submitted_tuning import SubmittedTuning


def test_a_tuning_job_says_where_the_logs_are() -> None:
    client = SimpleNamespace(describe_hyper_parameter_tuning_job=lambda **_: {})
    session = SimpleNamespace(sagemaker_client=client, logs_client=None)
    with pytest.raises(NotImplementedError, match="tuning job t has no log of its own; show the logs of the jobs"):
        SubmittedTuning(session=session, name="t").show_logs()
