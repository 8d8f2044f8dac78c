"""The estimator with a recording service: its requests, its output, and how its jobs end."""

import io
import math
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tidemill.control.training.admission import check_training_request
from tidemill.errors import JobFailed
from tidemill.sdk import InstanceGroup, Session, TensorFlow, TrainingCompilerConfig, TrainingInput, s3_input
from tidemill.sdk.console import Console
from tidemill.sdk.generic_estimator import Estimator
from tidemill.sdk.interruption import on_interrupt
from tidemill.sdk.predictor import Predictor
from tidemill.sdk.training_job import TrainingJob
from tidemill.wire.operations import operation

BUCKET = "sagemaker-us-west-2-000000000000"
T0_S = 1_700_000_000


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("print('hello')\n")
    return path


def transitions(*phases: tuple[str, float, str]) -> list[dict[str, Any]]:
    return [{"Status": s, "StartTime": T0_S + at, "StatusMessage": text} for s, at, text in phases]


def completed(logs: dict[str, list[tuple[int, str]]] | None = None) -> dict[str, Any]:
    return {
        "TrainingJobStatus": "Completed",
        "SecondaryStatus": "Completed",
        "TrainingEndTime": T0_S + 12,
        "ModelArtifacts": {"S3ModelArtifacts": f"s3://{BUCKET}/job/output/model.tar.gz"},
        "SecondaryStatusTransitions": transitions(
            ("Starting", 0, "Preparing"), ("Training", 2, "Training"), ("Completed", 12, "Done")
        ),
        "logs": logs or {},
    }


def names_in(archive: bytes) -> dict[str, bytes | None]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {m.name: f.read() if (f := tar.extractfile(m)) else None for m in tar}


def test_the_minimal_arguments_make_a_complete_request(aws: Any, session: Session, script: Path) -> None:
    TensorFlow(str(script), sagemaker_session=session).fit(wait=False, job_name="job")
    (request,) = aws.named("CreateTrainingJob")
    assert request == {
        "TrainingJobName": "job",
        "AlgorithmSpecification": {
            "TrainingImage": "000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py3",
            "TrainingInputMode": "File",
        },
        "RoleArn": "arn:aws:iam::000000000000:role/SageMakerRole",
        "HyperParameters": {
            "sagemaker_submit_directory": f'"s3://{BUCKET}/job/source/sourcedir.tar.gz"',
            "sagemaker_program": '"train.py"',
            "sagemaker_container_log_level": "20",
            "sagemaker_job_name": '"job"',
            "sagemaker_region": '"us-west-2"',
            "model_dir": f'"s3://{BUCKET}/job/model"',
        },
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/"},
        "ResourceConfig": {"InstanceCount": 1, "InstanceType": "local", "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
    }
    assert names_in(aws.objects[BUCKET, "job/source/sourcedir.tar.gz"]) == {"train.py": b"print('hello')\n"}


def test_the_first_names_mean_the_same_as_todays(aws: Any, session: Session, script: Path) -> None:
    first = {
        "train_instance_count": 2,
        "train_instance_type": "ml.p2.xlarge",
        "train_volume_size": 50,
        "train_max_run": 60,
        "image_name": "tidemill/tensorflow:2.21",
        "distributions": {"parameter_server": {"enabled": True}},
        "script_mode": True,
        "py_version": "py3",
    }
    today = {
        "instance_count": 2,
        "instance_type": "ml.p2.xlarge",
        "volume_size": 50,
        "max_run": 60,
        "image_uri": "tidemill/tensorflow:2.21",
        "distribution": {"parameter_server": {"enabled": True}},
        "py_version": "py3",
    }
    for arguments in (first, today, {**first, **today}):
        estimator = TensorFlow(entry_point=str(script), role="SageMakerRole", sagemaker_session=session, **arguments)
        estimator.fit(wait=False, job_name="job")
        assert estimator.train_instance_count == estimator.instance_count == 2
    one, *others = aws.named("CreateTrainingJob")
    assert others == [one, one]


def test_both_names_of_one_argument_with_different_values_are_refused(script: Path) -> None:
    with pytest.raises(ValueError, match="instance_count=1 and train_instance_count=2 are two names"):
        TensorFlow(str(script), train_instance_count=2, instance_count=1)


@pytest.mark.parametrize("name", ["training_steps", "evaluation_steps", "checkpoint_path", "requirements_file"])
def test_an_argument_of_legacy_mode_is_refused_with_its_script_mode_form(script: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}='9' belongs to legacy mode.*In script mode"):
        TensorFlow(str(script), **{name: "9"})


def test_a_script_of_legacy_mode_is_refused_unless_script_mode_is_asked_for(tmp_path: Path) -> None:
    script = tmp_path / "legacy.py"
    script.write_text("def model_fn(f, l, m, p):\n    pass\n\ndef train_input_fn(d, p):\n    pass\n")
    with pytest.raises(ValueError, match=r"legacy.py is a script of legacy mode.*script mode"):
        TensorFlow(str(script), framework_version="1.12")
    assert TensorFlow(str(script), framework_version="1.12", script_mode=True).script_mode
    assert TensorFlow(str(script), framework_version="1.12", py_version="py3").py_version == "py3"


def test_an_unknown_argument_is_refused_with_the_nearest_name(script: Path) -> None:
    with pytest.raises(TypeError, match="'instance_cuont' that it does not know; did you mean 'instance_count'"):
        TensorFlow(str(script), instance_cuont=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"py_version": "py4"}, "is not a version; expected 'py3'"),
        ({"script_mode": False}, "legacy mode"),
        ({"instance_count": 0}, "instance_count=0"),
        ({"instance_groups": [InstanceGroup("a", "local", 1)], "instance_count": 1}, "exclude each other"),
        ({"input_mode": "Stream"}, "expected File, Pipe or FastFile"),
        ({"base_job_name": "my_job"}, "base_job_name='my_job' is not a legal name"),
        ({"distribution": {"horovod": {}}}, "unknown kind 'horovod'"),
        ({"distribution": {"mpi": True}}, "is not a dictionary"),
        ({"git_config": {"branch": "x"}}, "git_config needs a repo"),
        ({"source_dir": "/nowhere"}, "no directory /nowhere"),
        ({"dependencies": ["/nowhere"]}, "/nowhere does not exist"),
        ({"max_wait": 1}, "less than max_run"),
        ({"compiler_config": "yes"}, "expected a TrainingCompilerConfig"),
        ({"distribution": {"smdistributed": {"dataparallel": {"enabled": True}}}}, "dataparallel_enabled=True"),
        ({"hyperparameters": {"sagemaker_distributed_dataparallel_enabled": 1}}, "hyperparameters=.*data parallelism"),
    ],
)
def test_a_value_that_cannot_be_honored_is_refused(script: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TensorFlow(str(script), **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"compiler_config": TrainingCompilerConfig()},
        {"compiler_config": TrainingCompilerConfig(enabled=False)},
        {"compiler_config": TrainingCompilerConfig(max_cost=math.inf)},
        {"distribution": {"mpi": {"enabled": False}}},
        {"distribution": {"smdistributed": {"modelparallel": {"enabled": False}}}},
        {"distribution": {"parameter_server": {"enabled": True}}},
        {"distribution": {"multi_worker_mirrored_strategy": {"enabled": True}}, "instance_count": 2},
        {"rules": [], "git_config": None, "requirements_file": ""},
    ],
)
def test_values_that_can_be_honored_are_accepted(
    aws: Any, session: Session, script: Path, arguments: dict[str, Any]
) -> None:
    TensorFlow(str(script), sagemaker_session=session, **arguments).fit(wait=False, job_name="job")
    (request,) = aws.named("CreateTrainingJob")
    operation("sagemaker", "CreateTrainingJob", "json").refuse(request)
    check_training_request(request)


def test_the_cost_of_compiling_is_a_hyperparameter_only_if_requested() -> None:
    name = "sagemaker_training_compiler_max_cost"
    assert name not in TrainingCompilerConfig().to_hyperparameters()
    sent = {given: TrainingCompilerConfig(max_cost=given).to_hyperparameters()[name] for given in (0, 0.1, math.inf)}
    assert sent == {0: "0", 0.1: "0.1", math.inf: "inf"}
    for wrong in (-1, math.nan, True):
        with pytest.raises(ValueError, match="expected a share"):
            TrainingCompilerConfig(max_cost=wrong)
    with pytest.raises(ValueError, match="without enabled=True"):
        TrainingCompilerConfig(enabled=False, max_cost=0.1)


def test_a_missing_script_is_named_with_its_whole_path(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"no file {tmp_path}/absent.py"):
        TensorFlow(str(tmp_path / "absent.py"))


def test_bools_and_lists_are_warned_of_at_the_users_line(script: Path) -> None:
    with pytest.warns(UserWarning, match="'augment' is a bool") as seen:
        TensorFlow(str(script), hyperparameters={"augment": False, "epochs": 1})
    assert [warning.filename for warning in seen] == [__file__]


def test_making_an_estimator_needs_no_service(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.sdk.connection.connect", None)
    assert TensorFlow(str(script)).role == "SageMakerRole"


def test_source_directory_and_dependencies_are_packed_as_they_lie(aws: Any, session: Session, tmp_path: Path) -> None:
    for name in ("src/pkg/__init__.py", "src/train.py", "src/__pycache__/x.pyc", "libs/common/a.py", "one.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    estimator = TensorFlow(
        "train.py",
        source_dir=str(tmp_path / "src"),
        dependencies=[str(tmp_path / "libs/common"), str(tmp_path / "one.py")],
        sagemaker_session=session,
        code_location="s3://code/prefix/",
    )
    estimator.fit(wait=False, job_name="job")
    assert "code" in aws.buckets
    packed = names_in(aws.objects["code", "prefix/job/source/sourcedir.tar.gz"])
    assert sorted(packed) == ["common", "common/a.py", "one.py", "pkg", "pkg/__init__.py", "train.py"]


def test_two_sources_of_one_name_are_refused(session: Session, tmp_path: Path, script: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/train.py").write_text("")
    estimator = TensorFlow(str(script), dependencies=[str(tmp_path / "other/train.py")], sagemaker_session=session)
    with pytest.raises(ValueError, match=r"would both become 'train.py'"):
        estimator.fit(wait=False)


def test_the_same_code_is_packed_into_the_same_bytes(aws: Any, session: Session, script: Path) -> None:
    for name in ("one", "two"):
        TensorFlow(str(script), sagemaker_session=session).fit(wait=False, job_name=name)
        script.touch()
    assert aws.objects[BUCKET, "one/source/sourcedir.tar.gz"] == aws.objects[BUCKET, "two/source/sourcedir.tar.gz"]


def test_the_output_bucket_is_created(aws: Any, session: Session, script: Path) -> None:
    TensorFlow(str(script), output_path="s3://results/here", sagemaker_session=session).fit(wait=False, job_name="job")
    assert "results" in aws.buckets
    assert ("results", "job/source/sourcedir.tar.gz") in aws.objects
    (request,) = aws.named("CreateTrainingJob")
    assert request["HyperParameters"]["model_dir"] == '"s3://results/here/job/model"'


def test_a_job_name_is_base_and_time(aws: Any, session: Session, script: Path) -> None:
    TensorFlow(str(script), sagemaker_session=session).fit(wait=False)
    TensorFlow(str(script), base_job_name="b" * 60, sagemaker_session=session).fit(wait=False)
    first, second = (request["TrainingJobName"] for request in aws.named("CreateTrainingJob"))
    assert first.startswith("tensorflow-training-20")
    assert len(second) == 63


# Channels


def test_a_string_is_the_channel_training(aws: Any, session: Session, script: Path) -> None:
    TensorFlow(str(script), sagemaker_session=session).fit("s3://data/train", wait=False)
    (request,) = aws.named("CreateTrainingJob")
    (channel,) = request["InputDataConfig"]
    assert channel == {
        "ChannelName": "training",
        "DataSource": {
            "S3DataSource": {
                "S3DataType": "S3Prefix",
                "S3Uri": "s3://data/train",
                "S3DataDistributionType": "FullyReplicated",
            }
        },
    }


def test_channel_configuration_is_sent_whole(aws: Any, session: Session, script: Path) -> None:
    channel = s3_input("s3://data/train", "ShardedByS3Key", compression="Gzip", input_mode="Pipe")
    other = TrainingInput("s3://data/test", record_wrapping="RecordIO", attribute_names=["a"])
    TensorFlow(str(script), sagemaker_session=session).fit({"train": channel, "test": other}, wait=False)
    train, test = aws.named("CreateTrainingJob")[0]["InputDataConfig"]
    assert train["DataSource"]["S3DataSource"]["S3DataDistributionType"] == "ShardedByS3Key"
    assert (train["CompressionType"], train["InputMode"], train["ChannelName"]) == ("Gzip", "Pipe", "train")
    assert (test["RecordWrapperType"], test["DataSource"]["S3DataSource"]["AttributeNames"]) == ("RecordIO", ["a"])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("data/train", "'data/train' is not an S3 URI.*write file://data/train"),
        ({"train": 3}, "channel 'train': 3 .int. is no input"),
        ("s3://B/x", "is not a bucket name"),
        ("file:///nowhere", "/nowhere does not exist"),
    ],
)
def test_an_invalid_input_is_refused_before_a_job_starts(
    aws: Any, session: Session, script: Path, inputs: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        TensorFlow(str(script), sagemaker_session=session).fit(inputs, wait=False)
    assert not aws.named("CreateTrainingJob")


def test_local_data_is_uploaded_once_for_the_same_content(
    aws: Any, session: Session, script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data set"
    (data / "deep").mkdir(parents=True)
    (data / "a.bin").write_bytes(b"aa")
    (data / "deep/b.bin").write_bytes(b"b" * 3000)
    estimator = TensorFlow(str(script), sagemaker_session=session)
    estimator.fit({"train": f"file://{data}"}, wait=False, job_name="one")
    estimator.fit({"train": data.as_uri()}, wait=False, job_name="two")
    uris = [r["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3Uri"] for r in aws.named("CreateTrainingJob")]
    assert uris[0] == uris[1]
    assert uris[0].endswith("/")
    prefix = uris[0].removeprefix(f"s3://{BUCKET}/")
    assert aws.objects[BUCKET, f"{prefix}a.bin"] == b"aa"
    assert aws.objects[BUCKET, f"{prefix}deep/b.bin"] == b"b" * 3000
    puts = [r for r in aws.named("PUT object") if r["key"].startswith("tidemill-inputs")]
    assert len(puts) == 2
    out = capsys.readouterr().out
    assert "Uploaded" in out
    assert "(2 files, 2.9 KiB)" in out
    assert "Unchanged, not uploaded again" in out
    assert "\x1b" not in out
    (data / "a.bin").write_bytes(b"ab")
    estimator.fit({"train": f"file://{data}"}, wait=False, job_name="three")
    assert aws.objects[BUCKET, f"{prefix}a.bin"] == b"aa", "data of an earlier job is never changed"


def test_a_single_file_is_its_own_channel_and_an_upload_cut_short_goes_on(
    aws: Any, session: Session, script: Path, tmp_path: Path
) -> None:
    (tmp_path / "x.npz").write_bytes(b"1234")
    estimator = TensorFlow(str(script), sagemaker_session=session)
    estimator.fit({"train": f"file://{tmp_path}/x.npz"}, wait=False)
    uri = aws.named("CreateTrainingJob")[0]["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3Uri"]
    key = uri.removeprefix(f"s3://{BUCKET}/")
    assert key.endswith("/x.npz")
    aws.objects[BUCKET, key] = b"12"
    estimator.fit({"train": f"file://{tmp_path}/x.npz"}, wait=False)
    assert aws.objects[BUCKET, key] == b"1234"


# Following


def test_phases_and_lines_are_shown_in_the_order_of_time(
    aws: Any, session: Session, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    aws.frames = [
        {},
        {
            "SecondaryStatusTransitions": transitions(("Starting", 0, "Preparing"), ("Training", 2, "Training")),
            "logs": {"algo-1-1": [((T0_S + 3) * 1000, f"line {n}") for n in range(5)]},
        },
        completed({"algo-1-1": [((T0_S + 9) * 1000, "\x1b[31mlast\x1b[0m")]}),
    ]
    TensorFlow(str(script), sagemaker_session=session).fit(job_name="job")
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" ")[2] if line[2:3] == ":" else line for line in lines] == [
        "Starting: Preparing",
        "Training: Training",
        *[f"line {n}" for n in range(5)],
        "\x1b[31mlast\x1b[0m",
        "Completed: Done",
        "Training job job: Completed after 12.0 s",
        f"Model: s3://{BUCKET}/job/output/model.tar.gz",
    ]
    events = aws.named("GetLogEvents")
    assert {e.get("nextToken") for e in events} == {None, "f/2", "f/4", "f/5", "f/6"}, "each page is read once"


def test_all_instances_are_shown_and_logs_false_shows_phases_only(
    aws: Any, session: Session, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = {f"algo-{n}-1": [((T0_S + 3) * 1000 + n, f"from {n}")] for n in (2, 10, 1)}
    aws.frames = [completed(logs)]
    TensorFlow(str(script), instance_count=3, sagemaker_session=session).fit(job_name="job")
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if "from" in line] == [
        "[algo-1] from 1",
        "[algo-2] from 2",
        "[algo-10] from 10",
    ]
    aws.frames = [completed(logs)]
    TensorFlow(str(script), sagemaker_session=session).fit(job_name="other", logs=False)
    out = capsys.readouterr().out
    assert "from" not in out
    assert "Training: Training" in out


def test_a_failed_job_raises_with_the_whole_reason(aws: Any, session: Session, script: Path) -> None:
    reason = 'AlgorithmError: ExecuteUserScriptError:\nExitCode 1\nErrorMessage "ValueError: ' + "x" * 900 + '"'
    aws.frames = [{"TrainingJobStatus": "Failed", "SecondaryStatus": "Failed", "FailureReason": reason}]
    with pytest.raises(JobFailed) as raised:
        TensorFlow(str(script), sagemaker_session=session).fit(job_name="job")
    assert str(raised.value) == f"training job job failed:\n{reason}"


def test_a_stopped_job_ends_the_wait_with_a_warning(
    aws: Any, session: Session, script: Path, caplog: pytest.LogCaptureFixture
) -> None:
    aws.frames = [{"TrainingJobStatus": "Stopped", "SecondaryStatus": "MaxRuntimeExceeded"}]
    TensorFlow(str(script), sagemaker_session=session).fit(job_name="job")
    assert "training job job was stopped before it had completed (MaxRuntimeExceeded)" in caplog.text


def test_a_service_that_goes_away_and_comes_back_does_not_end_the_wait(
    aws: Any, session: Session, script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    estimator = TensorFlow(str(script), sagemaker_session=session)
    estimator.fit(job_name="job", wait=False)
    aws.frames = [{}, completed()]
    aws.outage = 8  # more than botocore's own retries
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
    estimator.latest_training_job.wait()
    out = capsys.readouterr().out
    assert out.count("does not answer; trying again") >= 1
    assert "Completed" in out


def test_ctrl_c_does_not_stop_the_job_and_prints_how_to_attach(
    aws: Any, session: Session, script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    estimator = TensorFlow(str(script), sagemaker_session=session)
    estimator.fit(job_name="job", wait=False)
    monkeypatch.setattr(session, "describe_training_job", interrupted)
    with pytest.raises(KeyboardInterrupt):
        estimator.latest_training_job.wait()
    out = capsys.readouterr().out
    assert "TensorFlow.attach('job')" in out
    assert "tidemill stop job" in out
    assert not aws.named("StopTrainingJob")


def test_notebooks_show_tables_with_every_text_escaped(aws: Any, session: Session, script: Path) -> None:
    estimator = TensorFlow(str(script), sagemaker_session=session, hyperparameters={"<b>rate": "secret"})
    estimator.fit(job_name="job", wait=False)
    aws.frames = [{"TrainingJobStatus": "Failed", "FailureReason": "<script>alert(1)</script> & more"}]
    shown = estimator.latest_training_job._repr_html_()
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in shown
    assert "<script>" not in shown
    whole = estimator._repr_html_()
    assert "&lt;b&gt;rate" in whole
    assert "secret" not in whole
    assert ">job<" in whole
    assert "<img" not in Predictor("<img src=x>", session)._repr_html_()


def test_a_job_that_cannot_be_described_is_shown_too(session: Session) -> None:
    assert "not described" in TrainingJob(session, "nowhere")._repr_html_()


@pytest.mark.parametrize(("answer", "stops"), [("s\n", 1), ("stop\n", 1), ("d\n", 0), ("\n", 0), ("", 0)])
def test_on_a_terminal_ctrl_c_asks_whether_to_stop(aws: Any, session: Session, answer: str, stops: int) -> None:
    aws.jobs["job"] = {"TrainingJobName": "job"}

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = io.StringIO()
    ended = on_interrupt(session, "job", console=Console(shown), answers=Terminal(answer))
    assert isinstance(ended, KeyboardInterrupt)
    assert len(aws.named("StopTrainingJob")) == stops
    assert "[d]etach" in shown.getvalue()
    assert ("Stopping" in shown.getvalue()) == bool(stops)


def test_a_wrong_word_for_logs_is_refused_before_a_job_starts(aws: Any, session: Session, script: Path) -> None:
    with pytest.raises(ValueError, match="logs='all' is not allowed"):
        TensorFlow(str(script), sagemaker_session=session).fit(logs="all")
    assert not aws.requests


def test_tensorboard_is_a_command_to_copy(
    aws: Any, session: Session, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    TensorFlow(str(script), sagemaker_session=session).fit(job_name="job", wait=False, run_tensorboard_locally=True)
    assert "\n  tidemill tensorboard job\n" in capsys.readouterr().out


# Attaching


def test_an_attached_estimator_makes_the_same_job_again(
    aws: Any, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("")
    # A job of an earlier version, before this was refused: attaching does not refuse it.
    with monkeypatch.context() as earlier, pytest.warns(UserWarning, match="is a list"):
        earlier.setattr("tidemill.sdk.estimator.check_offered", lambda arguments: None)
        estimator = TensorFlow(
            "train.py",
            source_dir=str(tmp_path),
            instance_count=2,
            instance_type="ml.c5.xlarge",
            hyperparameters={"epochs": 3, "text": "a b", "sizes": [1, 2], "nothing": None},
            distribution={"mpi": {"enabled": True, "processes_per_host": 2, "custom_mpi_options": "-x A"}},
            framework_version="2.21",
            py_version="py3",
            base_job_name="digits",
            output_path="s3://results/here",
            code_location="s3://code/prefix",
            environment={"A": "b"},
            max_run=100,
            max_wait=200,
            use_spot_instances=True,
            volume_size=40,
            subnets=["subnet-1"],
            security_group_ids=["sg-1"],
            checkpoint_s3_uri="s3://results/checkpoints",
            checkpoint_local_path="/opt/ml/checkpoints",
            max_retry_attempts=3,
            metric_definitions=[{"Name": "loss", "Regex": "loss: ([0-9.]+)"}],
            model_uri="s3://results/old/model.tar.gz",
            input_mode="Pipe",
            compiler_config=TrainingCompilerConfig(max_cost=0.1),
            sagemaker_session=session,
        )
    estimator.fit("s3://data/train", wait=False)
    name = estimator.latest_training_job.name
    aws.frames = [completed()]
    attached = TensorFlow.attach(name, sagemaker_session=session)
    assert attached.latest_training_job.name == name
    assert attached.hyperparameters() == {"epochs": 3, "text": "a b", "sizes": [1, 2], "nothing": None}
    attached.fit("s3://data/train", wait=False)
    by_image = Estimator.attach(name, sagemaker_session=session)
    assert by_image.image_uri == estimator.training_image_uri()
    by_image.fit("s3://data/train", wait=False)
    first, second, third = aws.named("CreateTrainingJob")
    for request in (first, second, third):
        assert request.pop("TrainingJobName").startswith("digits-20")
        del request["HyperParameters"]["sagemaker_job_name"]
    assert first == second == third


def test_attaching_to_a_running_job_follows_it(
    aws: Any, session: Session, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    TensorFlow(str(script), sagemaker_session=session).fit(job_name="job", wait=False)
    aws.log("job/algo-1-1", "early", at_ms=T0_S * 1000)
    aws.frames = [{}, {}, completed({"algo-1-1": [((T0_S + 9) * 1000, "late")]})]
    attached = TensorFlow.attach("job", sagemaker_session=session)
    out = capsys.readouterr().out
    assert out.index("early") < out.index("late") < out.index("Completed")
    assert attached.model_data == f"s3://{BUCKET}/job/output/model.tar.gz"
    attached.logs()
    assert capsys.readouterr().out.splitlines() == ["early", "late"]


def test_attaching_to_a_failed_job_raises_its_reason(aws: Any, session: Session, script: Path) -> None:
    TensorFlow(str(script), sagemaker_session=session).fit(job_name="job", wait=False)
    aws.frames = [{"TrainingJobStatus": "Failed", "FailureReason": "because"}]
    with pytest.raises(JobFailed, match="because"):
        TensorFlow.attach("job", sagemaker_session=session)


def test_a_job_without_entry_point_cannot_be_attached(aws: Any, session: Session) -> None:
    aws.create_training_job(
        {"TrainingJobName": "bare", "OutputDataConfig": {"S3OutputPath": "s3://b"}, "HyperParameters": {}}
    )
    with pytest.raises(ValueError, match="bare was not started by an estimator"):
        TensorFlow.attach("bare", sagemaker_session=session)


def test_stop_and_describe_reach_the_service(aws: Any, session: Session, script: Path) -> None:
    estimator = TensorFlow(str(script), sagemaker_session=session)
    with pytest.raises(ValueError, match="no training job; call fit"):
        estimator.logs()
    estimator.fit(job_name="job", wait=False)
    estimator.latest_training_job.stop()
    assert aws.named("StopTrainingJob") == [{"TrainingJobName": "job"}]
    assert estimator.latest_training_job.describe()["TrainingJobStatus"] == "InProgress"
    with pytest.raises(ValueError, match="is InProgress and has no model"):
        _ = estimator.model_data


def test_an_instance_type_that_aws_does_not_offer_is_warned_of_at_the_users_line(
    aws: Any, session: Session, script: Path
) -> None:
    aws.frames = [{"TrainingJobStatus": "Completed", "SecondaryStatus": "Completed"}]
    estimator = TensorFlow(str(script), instance_type="m5.large", sagemaker_session=session)
    with pytest.warns(UserWarning, match=r"no instance type 'm5.large' \(did you mean 'ml.m5.large'\?\)") as seen:
        estimator.fit(job_name="job")
    assert [warning.filename for warning in seen] == [__file__]


class DebuggerRule:
    def to_debugger_rule_config_dict(self) -> dict[str, Any]:
        return {"RuleConfigurationName": "Loss", "RuleEvaluatorImage": "image"}


class ProfilerRule:
    def to_profiler_rule_config_dict(self) -> dict[str, Any]:
        return {"RuleConfigurationName": "Slow", "RuleEvaluatorImage": "image"}


def test_rules_are_sent_by_their_kind(aws: Any, session: Session, script: Path) -> None:
    plain = {"RuleConfigurationName": "Plain", "RuleEvaluatorImage": "image"}
    rules = [DebuggerRule(), ProfilerRule(), plain]
    TensorFlow(str(script), rules=rules, sagemaker_session=session).fit(wait=False, job_name="job")
    (request,) = aws.named("CreateTrainingJob")
    assert [rule["RuleConfigurationName"] for rule in request["DebugRuleConfigurations"]] == ["Loss", "Plain"]
    assert [rule["RuleConfigurationName"] for rule in request["ProfilerRuleConfigurations"]] == ["Slow"]
    with pytest.raises(ValueError, match=r"rules: 1 \(int\) cannot be sent"):
        TensorFlow(str(script), rules=[1], sagemaker_session=session).fit(wait=False)


def test_a_helper_that_was_not_submitted_is_named_when_its_import_fails(
    aws: Any, session: Session, script: Path
) -> None:
    helper = script.with_name("helper.py")
    helper.touch()
    reason = "AlgorithmError: ExecuteUserScriptError: ModuleNotFoundError: No module named 'helper.nested'"
    for module, hint in ((reason, f"{helper} was not submitted"), (reason.replace("helper", "pandas"), None)):
        aws.frames = [{"TrainingJobStatus": "Failed", "SecondaryStatus": "Failed", "FailureReason": module}]
        with pytest.raises(JobFailed) as failed:
            TensorFlow(str(script), sagemaker_session=session).fit(job_name="job")
        assert module in str(failed.value)
        assert ("source_dir=" in str(failed.value)) == (hint is not None)
        assert hint is None or hint in str(failed.value)


def test_a_notebook_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    notebook = tmp_path / "train.ipynb"
    notebook.write_text("{}")
    with pytest.raises(ValueError, match=r"is a notebook.*nbconvert --to script"):
        TensorFlow(str(notebook))
    with pytest.raises(ValueError, match="is a notebook"):
        TensorFlow("train.ipynb", source_dir=str(tmp_path))


def test_a_job_that_saved_no_model_says_where_to_save_it(aws: Any, session: Session, script: Path) -> None:
    aws.frames = [{"TrainingJobStatus": "Completed", "SecondaryStatus": "Completed"}]
    estimator = TensorFlow(str(script), sagemaker_session=session)
    estimator.fit(job_name="job")
    with pytest.raises(ValueError, match=r"is Completed and saved no model.*SM_MODEL_DIR"):
        _ = estimator.model_data
