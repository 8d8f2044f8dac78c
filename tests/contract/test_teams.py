"""What teams do around training, with AWS's SDK v2 as it is: the calls of whole notebooks in single scripts."""

from collections.abc import Callable
from typing import Any

import pytest

RunSdk = Callable[[str, str], list[str]]


@pytest.mark.matrix
def test_a_workflow_prepares_trains_tunes_registers_deploys_and_transforms(run_sdk: RunSdk) -> None:
    assert run_sdk("peers", "v2.py") == [
        "ROLE arn:aws:iam::000000000000:role/SageMakerRole",
        "PREPARED ['x_test_0.npy', 'x_test_1.npy', 'x_train_0.npy', 'x_train_1.npy']",
        "TRAINED val_loss",
        "TUNED 3 True {'Completed'}",
        "REGISTERED [1]",
        "FOUND 3",
        "PREDICTED 2",
        "SCORED ['rows.json.out']",
    ]


@pytest.mark.matrix
def test_a_pipeline_registers_a_good_model_and_fails_for_a_bad_one_with_cached_steps(run_sdk: RunSdk) -> None:
    assert run_sdk("peers", "v2_pipeline.py") == [
        "EXECUTED Succeeded [('Evaluate', 'Succeeded'), ('GoodEnough', 'Succeeded'), ('Prepare', 'Succeeded'),"
        " ('Register-RegisterModel', 'Succeeded'), ('Register-RepackModel-0', 'Succeeded'), ('Train', 'Succeeded')]",
        "REGISTERED [(1, 'Approved')]",
        "WAITED WaiterError",
        "EXECUTED Failed [('Evaluate', 'Succeeded'), ('GoodEnough', 'Succeeded'), ('Prepare', 'Succeeded'),"
        " ('TooBad', 'Failed'), ('Train', 'Succeeded')]",
        "CACHED ['Prepare', 'Train']",
        "FAILED MSE is above 0.0",
    ]


@pytest.mark.matrix
def test_a_classifier_trains_in_script_mode_on_both_tensorflows_and_answers(
    run_sdk: RunSdk, build_environment: Callable[[str], Any]
) -> None:
    build_environment("1.15")
    assert run_sdk("peers", "v2_script_mode.py") == [
        "TRAINED ['Completed', 'Completed']",
        "PREDICTED 100% 100%",
        "INVOKED 2",
        "DELETED 1",
        "INVOKED 2",
        "DELETED 2",
    ]
