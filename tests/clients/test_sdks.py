"""AWS's SDKs, unmodified: versions 1 and 3 of that for Python, that for JavaScript, and what takes version 2 long."""

from collections.abc import Callable

import pytest

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


def test_version_3_runs_a_pipeline_that_registers_a_good_model_and_fails_for_a_bad_one(run_sdk: RunSdk) -> None:
    assert run_sdk("sdk-v3", "v3_pipeline.py") == [
        "EXECUTED Succeeded 5",
        "REGISTERED [(1, 'Approved')]",
        "WAITED WaiterError",
        "CACHED ['Prepare', 'Train']",
        "FAILED the model is too bad",
    ]


def test_version_3_trains_under_mpi_and_on_several_instances_without_ssh(run_sdk: RunSdk) -> None:
    assert run_sdk("sdk-v3", "v3_distributed.py") == [
        "ALONE ['0 of 2 on algo-1', '1 of 2 on algo-1']",
        "SEVERAL ['0 of 4 on algo-1', '1 of 4 on algo-1', '2 of 4 on algo-2', '3 of 4 on algo-2']",
        "PLAIN ['0 of 0 on algo-1', '0 of 0 on algo-2']",
        "FAILED rank 1 on algo-2: ValueError: rank 1 has no data",
        "FAILED ValueError: rank 0 has no data",
        "REFUSED distributed=Torchrun(): torchrun belongs to",
    ]


def test_version_2_trains_under_mpi_on_two_instances(run_sdk: RunSdk) -> None:
    assert run_sdk("peers", "v2_distributed.py") == [
        "SEVERAL ['0 of 4 on algo-1', '1 of 4 on algo-1', '2 of 4 on algo-2', '3 of 4 on algo-2']"
    ]


@pytest.mark.parametrize(("environment", "script"), [("peers", "v2_remote.py"), ("sdk-v3", "v3_remote.py")])
def test_remote_functions_return_results_and_raise_exceptions(run_sdk: RunSdk, environment: str, script: str) -> None:
    assert run_sdk(environment, script) == [
        "RETURNED {'rows': [2, 4], 'team': 'tides', 'module': True, 'job': 'where'}",
        "MAPPED 2.0 True",
        "RAISED -4 has no root",
    ]


@pytest.mark.parametrize(("environment", "script"), [("peers", "v2_steps.py"), ("sdk-v3", "v3_steps.py")])
def test_functions_are_steps_of_a_pipeline(run_sdk: RunSdk, environment: str, script: str) -> None:
    assert run_sdk(environment, script) == [
        "EXECUTED Succeeded [('Double', 'Succeeded'), ('Report', 'Succeeded')]",
        "RESULT found 10",
    ]


def test_version_3_deploys_registers_and_transforms(run_sdk: RunSdk) -> None:
    assert run_sdk("sdk-v3", "v3_deploy.py") == [
        "BUILT Model InService [0.5, 2.5]",
        "CREATED All [0.5, 2.5]",
        "REGISTERED [1]",
        'SCORED Completed {"predictions":[[0.5]]}{"predictions":[[2.5]]}',
    ]


def test_version_3_tracks_runs_of_an_experiment(run_sdk: RunSdk) -> None:
    assert run_sdk("sdk-v3", "v3_experiment.py") == [
        "RUNS ['first', 'second']",
        "TRIALS 1 True True",
        "FIRST ['checked', 'kind', 'rows'] [('loss', 3, 0.3333333333333333)]",
    ]


def test_version_2_deploys_a_job_whose_image_it_does_not_know(run_sdk: RunSdk) -> None:
    assert run_sdk("peers", "v2_attach.py") == [
        "ATTACHED 2.21.0 py311",
        "REFUSED Unsupported tensorflow version: 2",
        "PREDICTED {'predictions': [0.5, 2.5]}",
    ]


def test_the_notebooks_of_version_2_run_by_tidemill_run_where_it_is_missing(run_sdk: RunSdk) -> None:
    prepared, trained, *others = run_sdk("own", "v2.py")[1:]
    assert prepared == "PREPARED ['x_test_0.npy', 'x_test_1.npy', 'x_train_0.npy', 'x_train_1.npy']"
    assert trained == "TRAINED val_loss"
    assert others == [
        "TUNED 3 True {'Completed'}",
        "REGISTERED [1]",
        "FOUND 3",
        "PREDICTED 2",
        "SCORED ['rows.json.out']",
    ]
    assert run_sdk("own", "v2_pipeline.py")[-2:] == ["CACHED ['Prepare', 'Train']", "FAILED MSE is above 0.0"]


def test_javascript_runs_a_processing_job_and_searches(run_sdk: RunSdk) -> None:
    assert run_sdk("sdk-js", "js.cjs") == ["PREPARED Completed from a script", "FOUND 1"]
