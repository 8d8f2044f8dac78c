"""Versions 1 and 3 of AWS's SDK, unmodified: what teams do around training. Version 2 is tested in every run."""

from collections.abc import Callable

RunSdk = Callable[[str, str], list[str]]

ROLE = "ROLE arn:aws:iam::000000000000:role/SageMakerRole"


def test_version_1_prepares_trains_tunes_deploys_and_transforms(run_sdk: RunSdk) -> None:
    assert run_sdk("sdk-v1", "v1.py") == [
        ROLE,
        "PREPARED ['test', 'train']",
        "TRAINED Completed",
        "TUNED Completed True",
        "PREDICTED 1",
        "SCORED ['rows.json.out']",
    ]


def test_version_3_prepares_trains_and_tunes(run_sdk: RunSdk) -> None:
    assert run_sdk("sdk-v3", "v3.py") == [ROLE, "PREPARED ['x_train_0.npy']", "TRAINED Completed", "TUNED Completed 2"]


def test_version_3_runs_a_pipeline(run_sdk: RunSdk) -> None:
    assert run_sdk("sdk-v3", "v3_pipeline.py") == ["EXECUTED Succeeded 4"]
