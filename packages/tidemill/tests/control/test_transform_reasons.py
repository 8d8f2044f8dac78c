"""The FailureReason of a transform job: at most 1,024 characters, also with the number of other objects."""

import pytest

from tidemill.control.transform.driver import _Failed, _raise_if_incomplete
from tidemill.control.transform.run import Transformed
from tidemill.core.transform import TransformJob

JOB = TransformJob(name="t", arn="arn", job_id="00", request={}, model={}, created_ms=1, log_streams=("s", "data"))


@pytest.mark.parametrize("failed", [1, 2])
@pytest.mark.parametrize("length", [10, 1024, 5000])
def test_the_first_failure_leaves_room_for_the_number_of_others(failed: int, length: int) -> None:
    transformed = Transformed(failed=failed, first_failure="x" * length)
    with pytest.raises(_Failed) as raised:
        _raise_if_incomplete(transformed, JOB)
    text = str(raised.value)
    assert len(text) <= 1024
    assert (len(text) == 1024) == (length > 10)
    assert ("1 more objects have no result; see the log stream t/data-log)" in text) == (failed == 2)
