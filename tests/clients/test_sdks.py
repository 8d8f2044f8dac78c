"""AWS's SDKs that no other test runs, unmodified: versions 1 and 3 of that for Python, and that for JavaScript."""

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


def test_javascript_runs_a_processing_job_and_searches(run_sdk: RunSdk) -> None:
    assert run_sdk("sdk-js", "js.cjs") == ["PREPARED Completed from a script", "FOUND 1"]
