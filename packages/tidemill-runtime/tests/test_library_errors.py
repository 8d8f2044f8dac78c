"""Which library error heads a failure report."""

from __future__ import annotations

import pytest

from tidemill_runtime.library_errors import TENSORFLOW_ERRORS, library_error_in


@pytest.mark.parametrize("name", TENSORFLOW_ERRORS)
def test_each_error_of_tensorflow_is_found_by_its_whole_name(name):
    assert library_error_in(f"tensorflow.python.framework.errors_impl.{name}: why\n") == name
    assert library_error_in(f"  raise {name}(message)") == name
    assert library_error_in(f"My{name}: why") == library_error_in(f"{name}s: why") == ""


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", ""),
        ("Traceback (most recent call last):\nValueError: no", ""),
        ("FileNotFoundError: [Errno 2] No such file", ""),
        ("UnknownError: a\nAbortedError: b", "AbortedError"),
        ("horovod.common.exceptions.HorovodInternalError: rank 1 has ended", "HorovodInternalError"),
        ("smdistributed.modelparallel.backend.exceptions.SMPUsageError: x", "SMPUsageError"),
        ("smdistributed.modelparallel.backend.exceptions.SMPUsageError", "SMPUsageError"),
        ("horovod.common.HorovodInternalError\nNotFoundError: x", "NotFoundError"),
        ("my.horovod.common.exceptions.HorovodInternalError: x", ""),
        ("horovod.common.exceptions.init: x", ""),
        ("see horovod.tensorflow.mpi_ops.Sum.", ""),
    ],
    ids=str,
)
def test_tensorflows_names_go_before_qualified_ones_and_their_order_decides(text, name):
    assert library_error_in(text) == name
