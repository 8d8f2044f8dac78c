"""Runs of tidemill's SDK against the services: what they log, and what belongs to them."""

from pathlib import Path
from typing import Any

import pytest

from tidemill.sdk import Processor, Run, Session, TensorFlow, list_runs, load_run


def test_a_run_logs_parameters_metrics_and_files(session: Session, sagemaker: Any, tmp_path: Path) -> None:
    (tmp_path / "notes.csv").write_text("a,b")
    with Run("Tides", "First", sagemaker_session=session, tags={"team": "north"}) as run:
        run.log_parameters({"rate": 0.5, "kind": "lstm", "bad": float("nan")})
        for step in range(23):
            run.log_metric("loss", float(step), step=step)
        run.log_metric("loss", float("inf"))
        run.log_artifact("data", "s3://data/in", "text/csv", is_output=False)
        run.log_file(str(tmp_path / "notes.csv"))
        inner = load_run(sagemaker_session=session)
        assert (inner.experiment_name, inner.run_name) == ("tides", "first")
    found = sagemaker.describe_trial_component(TrialComponentName="tides-first")
    assert found["Parameters"] == {"rate": {"NumberValue": 0.5}, "kind": {"StringValue": "lstm"}}
    assert [(each["Count"], each["Last"]) for each in found["Metrics"]] == [(23, 22.0)]
    assert found["InputArtifacts"] == {"data": {"Value": "s3://data/in", "MediaType": "text/csv"}}
    place = "s3://data/trial-component-artifacts/tides-first/notes.csv"
    assert found["OutputArtifacts"] == {"notes.csv": {"Value": place, "MediaType": "text/csv"}}
    assert found["Status"]["PrimaryStatus"] == "Completed" and found["StartTime"] <= found["EndTime"]
    assert sagemaker.list_tags(ResourceArn=found["TrialComponentArn"])["Tags"] == [
        {"Key": "team", "Value": "north"},
        {"Key": "sagemaker:trial-component-source", "Value": "run"},
    ]
    with pytest.raises(RuntimeError, match="is closed"):
        run.log_parameter("rate", 1)


def test_a_run_that_raises_has_failed_and_can_be_continued(session: Session, sagemaker: Any) -> None:
    with pytest.raises(ValueError, match="too deep"), Run("tides", "first", sagemaker_session=session) as run:
        run.log_parameter("rate", 1)
        raise ValueError("too deep")
    found = sagemaker.describe_trial_component(TrialComponentName="tides-first")
    assert found["Status"] == {"PrimaryStatus": "Failed", "Message": "too deep"}
    with load_run("first", "tides", session) as run:
        run.log_parameter("depth", 2)
        with pytest.raises(RuntimeError, match="cannot be nested"), run:
            pass
    found = sagemaker.describe_trial_component(TrialComponentName="tides-first")
    assert sorted(found["Parameters"]) == ["depth", "rate"] and found["Status"]["PrimaryStatus"] == "Completed"


def test_jobs_of_a_run_belong_to_it_and_runs_are_listed(
    session: Session, sagemaker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("")
    estimator = TensorFlow(str(tmp_path / "train.py"), sagemaker_session=session, output_path="s3://data/out")
    processor = Processor(
        role="SageMakerRole",
        image_uri="tensorflow-training:2.21.0-cpu-py312",
        instance_count=1,
        instance_type="local",
        entrypoint=["python3", "-V"],
        sagemaker_session=session,
    )
    with Run("tides", "first", sagemaker_session=session):
        estimator.fit(job_name="job", wait=False)
        processor.run(job_name="prepare", wait=False)
    estimator.fit(job_name="other", wait=False)
    Run("tides", "second", sagemaker_session=session)
    config = sagemaker.describe_training_job(TrainingJobName="job")["ExperimentConfig"]
    assert config == {
        "ExperimentName": "tides",
        "TrialName": "Default-Run-Group-tides",
        "RunName": "tides-first",
    }
    assert sagemaker.describe_processing_job(ProcessingJobName="prepare")["ExperimentConfig"] == config
    assert "ExperimentConfig" not in sagemaker.describe_training_job(TrainingJobName="other")
    runs = list_runs("Tides", sagemaker_session=session, sort_by="Name", sort_order="Ascending")
    assert [run.run_name for run in runs] == ["first", "second"]
    assert [run.run_name for run in list_runs("tides", sagemaker_session=session, max_results=1)] != []
    monkeypatch.setenv("TRAINING_JOB_ARN", "arn:aws:sagemaker:us-west-2:000000000000:training-job/job")
    assert load_run(sagemaker_session=session).run_name == "first"
    monkeypatch.setenv("TRAINING_JOB_ARN", "arn:aws:sagemaker:us-west-2:000000000000:training-job/other")
    with pytest.raises(RuntimeError, match="no run to load"):
        load_run(sagemaker_session=session)
    with pytest.raises(ValueError, match="needs experiment_name"):
        load_run("first")
    with pytest.raises(ValueError, match="at most 59"):
        Run("x" * 60, sagemaker_session=session)
