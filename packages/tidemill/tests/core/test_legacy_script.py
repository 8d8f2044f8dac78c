"""Scripts of legacy mode, which would do nothing as a program."""

import pytest

from tidemill.core.legacy_script import legacy_refusal

LEGACY = '''"""A model for legacy mode."""
import tensorflow as tf

BATCH = 32


def model_fn(features, labels, mode, params):
    pass


def train_input_fn(training_dir, params):
    pass


def serving_input_fn(params):
    pass
'''


@pytest.mark.parametrize("model", ["model_fn", "estimator_fn", "keras_model_fn"])
def test_a_script_that_only_defines_the_functions_of_legacy_mode_is_refused(model: str) -> None:
    reason = legacy_refusal("train.py", LEGACY.replace("model_fn", model))
    assert reason is not None
    assert reason.startswith(f"train.py is a script of legacy mode: it only defines {model}, train_input_fn")
    assert 'py_version="py3"' in reason


@pytest.mark.parametrize(
    "source",
    [
        LEGACY + 'if __name__ == "__main__":\n    model_fn(0, 0, 0, 0)\n',
        LEGACY + "train_input_fn(None, None)\n",
        LEGACY.replace("train_input_fn", "input_fn"),
        LEGACY.replace("def model_fn", "def build"),
        "def input_fn(data, content_type):\n    pass\n\ndef model_fn(model_dir):\n    pass\n",
        "def (",
        "(" * 5000,
        "",
    ],
)
def test_other_scripts_run(source: str) -> None:
    assert legacy_refusal("train.py", source) is None
