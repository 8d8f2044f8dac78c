"""What the job's log says about a model directory that TensorFlow Serving could not serve."""

from __future__ import annotations

import re

import pytest

from tidemill_runtime.model_check import warnings_about


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ((), "nothing was saved under"),
        (("weights.h5", "1/variables/variables.index"), r"no SavedModel under .*model\.export"),
        (("saved_model.pb",), r"the SavedModel in '\.' below"),
        (("export/saved_model.pb",), "the SavedModel in 'export' below .* not in a directory named by a version"),
        (("1/saved_model.pb", "v2/saved_model.pbtxt"), "the SavedModel in 'v2' below"),
        (("-1/saved_model.pb",), "the SavedModel in '-1' below"),
        (("1/saved_model.pb",), None),
        (("00000123/saved_model.pbtxt", "readme.txt"), None),
        (("export/Servo/1700000000/saved_model.pb",), None),
    ],
)
def test_a_directory_that_cannot_be_served_is_warned_about_with_the_remedy(tmp_path, files, words):
    model = tmp_path / "7"  # a name that is a number does not make the directory itself a version
    for name in files:
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        (model / name).touch()
    found = warnings_about(model)
    assert len(found) == (words is not None)
    assert words is None or re.search(words, found[0]), found
