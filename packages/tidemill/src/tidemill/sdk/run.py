"""Track runs: parameters, metrics and files of one try, in a trial component of an experiment.

The names of the trial, of the component and of its tag are those of AWS's SDK v2, so that both SDKs find each other's
runs.
"""

import json
import mimetypes
import os
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

from tidemill.sdk.arguments import present, tags_of
from tidemill.sdk.run_context import current_run, enter_run, leave_run
from tidemill.sdk.session import Session

_NAME_MAX = 59
_TRIAL = "Default-Run-Group-"
_TRIAL_NAME_MAX = 120
_TAG = {"Key": "sagemaker:trial-component-source", "Value": "run"}
_PREFIX = "trial-component-artifacts"
_BATCH = 10
_MESSAGE_MAX = 1024
_PROCESSING = Path("/opt/ml/config/processingjobconfig.json")


class Run:
    """One run of an experiment; the experiment and the run are created if they are missing.

    Everything is logged within a ``with`` block. Jobs that are created within it get the run's `experiment_config`.

    Args:
        experiment_name: Name of the experiment; used in lower case.
        run_name: Name of the run; used in lower case. Default: a generated name.
        experiment_display_name: Name to show, for a new experiment.
        run_display_name: Name to show, for a new run.
        tags: Tags of what is created: a dict, or a list of dicts with ``Key`` and ``Value``.
        sagemaker_session: The `Session` to use. None connects to the configured service, or starts this user's own.
        artifact_bucket: Bucket of files. Default: the session's.
        artifact_prefix: Prefix of files. Default: ``trial-component-artifacts``.

    Raises:
        ValueError: A name is longer than 59 characters.

    Example:
        >>> with Run("tides", "first") as run:  # doctest: +SKIP
        ...     run.log_parameter("rate", 0.1)
    """

    def __init__(
        self,
        experiment_name: str,
        run_name: str | None = None,
        experiment_display_name: str | None = None,
        run_display_name: str | None = None,
        tags: Any = None,
        sagemaker_session: Any = None,
        artifact_bucket: str | None = None,
        artifact_prefix: str | None = None,
    ) -> None:
        self.experiment_name = _checked("experiment_name", experiment_name)
        self.run_name = _checked(
            "run_name", run_name or f"sagemaker-run-{int(datetime.now().timestamp())}-{secrets.token_hex(2)}"
        )
        self.run_group_name = f"{_TRIAL}{self.experiment_name}"[:_TRIAL_NAME_MAX]
        self.sagemaker_session = Session.adopt(sagemaker_session)
        self._component = f"{self.experiment_name}-{self.run_name}"
        self._bucket, self._prefix = artifact_bucket, artifact_prefix or _PREFIX
        self._changes: dict[str, dict[str, Any]] = {"Parameters": {}, "InputArtifacts": {}, "OutputArtifacts": {}}
        self._points: list[dict[str, Any]] = []
        self._is_open = False
        given = tags_of(tags) or []
        client = self.sagemaker_session.sagemaker_client
        experiment = {"ExperimentName": self.experiment_name, "Tags": given}
        self._create(client.create_experiment, **present(**experiment, DisplayName=experiment_display_name))
        trial = {"TrialName": self.run_group_name, "ExperimentName": self.experiment_name, "Tags": given}
        self._create(client.create_trial, **trial)
        component = {"TrialComponentName": self._component, "Tags": [*given, _TAG]}
        self._create(client.create_trial_component, **present(**component, DisplayName=run_display_name))
        client.associate_trial_component(TrialComponentName=self._component, TrialName=self.run_group_name)

    @property
    def experiment_config(self) -> dict[str, str]:
        """The ExperimentConfig of jobs that belong to the run."""
        return {
            "ExperimentName": self.experiment_name,
            "TrialName": self.run_group_name,
            "RunName": self._component,
        }

    def log_parameter(self, name: str, value: str | float) -> None:
        """Log a parameter; an earlier value of the name is replaced. A number that is not finite is left out.

        Args:
            name: Name of the parameter.
            value: Text or number.
        """
        self._check_open()
        if isinstance(value, str):
            self._changes["Parameters"][name] = {"StringValue": value}
        elif isfinite(value):
            self._changes["Parameters"][name] = {"NumberValue": float(value)}

    def log_parameters(self, parameters: Mapping[str, str | float]) -> None:
        """Log several parameters.

        Args:
            parameters: Values by name.
        """
        for name, value in parameters.items():
            self.log_parameter(name, value)

    def log_metric(self, name: str, value: float, timestamp: datetime | None = None, step: int | None = None) -> None:
        """Log a value of a metric. Values are sent by tens, and at the end of the block. NaN is left out.

        Args:
            name: Name of the metric.
            value: The value.
            timestamp: Its time. Default: now.
            step: Number of the iteration. Default: none.
        """
        self._check_open()
        if not isfinite(value):
            return
        at = timestamp or datetime.now(UTC)
        self._points.append(present(MetricName=name, Value=float(value), Timestamp=at, Step=step))
        if len(self._points) >= _BATCH:
            self._send_points()

    def log_artifact(self, name: str, value: str, media_type: str | None = None, is_output: bool = True) -> None:
        """Log where something is, e.g. the URI of data.

        Args:
            name: Name of the artifact.
            value: The place.
            media_type: MIME type. Default: none.
            is_output: Whether the run made it. Default: True.
        """
        self._check_open()
        member = "OutputArtifacts" if is_output else "InputArtifacts"
        self._changes[member][name] = present(Value=value, MediaType=media_type)

    def log_file(
        self,
        file_path: str,
        name: str | None = None,
        media_type: str | None = None,
        is_output: bool = True,
        extra_args: Mapping[str, Any] | None = None,
    ) -> None:
        """Upload a file and log it as an artifact.

        Args:
            file_path: Path of the file.
            name: Name of the artifact. Default: that of the file.
            media_type: MIME type. Default: guessed from the name of the file.
            is_output: Whether the run made it. Default: True.
            extra_args: ``ExtraArgs`` of boto3's ``upload_file``. Default: none.
        """
        path = Path(file_path).expanduser()
        bucket = self._bucket or self.sagemaker_session.default_bucket()
        key = f"{self._prefix}/{self._component}/{path.name}"
        extra = dict(extra_args) if extra_args else None
        self.sagemaker_session.s3_client.upload_file(str(path), bucket, key, ExtraArgs=extra)
        guessed = media_type or mimetypes.guess_type(path.name)[0]
        self.log_artifact(name or path.name, f"s3://{bucket}/{key}", guessed, is_output)

    def close(self) -> None:
        """Send what was logged."""
        self._update(**{member: values for member, values in self._changes.items() if values})
        self._changes = {member: {} for member in self._changes}
        self._send_points()

    def __enter__(self) -> "Run":
        if self._is_open:
            raise RuntimeError(f"the run {self.run_name!r} is open already: its `with` blocks cannot be nested")
        self._is_open = True
        enter_run(self)
        component = self.sagemaker_session.sagemaker_client.describe_trial_component(TrialComponentName=self._component)
        started = {} if "StartTime" in component else {"StartTime": datetime.now(UTC)}
        self._update(Status={"PrimaryStatus": "InProgress", "Message": "Within a run"}, **started)
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        leave_run(self)
        failure = {"Message": str(error)[:_MESSAGE_MAX]} if str(error or "") else {}
        status = {"PrimaryStatus": "Completed" if kind is None else "Failed", **failure}
        self.close()
        self._update(Status=status, EndTime=datetime.now(UTC))
        self._is_open = False

    def _create(self, create: Any, **members: Any) -> None:
        try:
            create(**members)
        except self.sagemaker_session.sagemaker_client.exceptions.ClientError as error:
            if "already exists" not in error.response["Error"]["Message"]:
                raise

    def _update(self, **members: Any) -> None:
        if members:
            self.sagemaker_session.sagemaker_client.update_trial_component(
                TrialComponentName=self._component, **members
            )

    def _send_points(self) -> None:
        points = tuple(self._points)
        self._points.clear()
        for begin in range(0, len(points), _BATCH):
            self.sagemaker_session.sagemaker_metrics_client.batch_put_metrics(
                TrialComponentName=self._component, MetricData=points[begin : begin + _BATCH]
            )

    def _check_open(self) -> None:
        if not self._is_open:
            raise RuntimeError(f"the run {self.run_name!r} is closed: log within its block, `with Run(...) as run:`")


def load_run(
    run_name: str | None = None,
    experiment_name: str | None = None,
    sagemaker_session: Any = None,
    artifact_bucket: str | None = None,
    artifact_prefix: str | None = None,
    tags: Any = None,
) -> Run:
    """Return an existing run: the one that is named, else that of the enclosing block, else that of the job.

    Args:
        run_name: Name of the run, together with ``experiment_name``.
        experiment_name: Name of the experiment.
        sagemaker_session: As for `Run`.
        artifact_bucket: As for `Run`.
        artifact_prefix: As for `Run`.
        tags: As for `Run`.

    Returns:
        A new object for the run, also in a block.

    Raises:
        ValueError: ``run_name`` without ``experiment_name``.
        RuntimeError: No run is named, there is no block, and the job belongs to none.
    """
    if run_name is not None and experiment_name is None:
        raise ValueError(f"run_name={run_name!r} needs experiment_name: names of runs are unique in an experiment")
    session = Session.adopt(sagemaker_session)
    if run_name is None and current_run() is not None:
        run = current_run()
        return Run(run.experiment_name, run.run_name, None, None, tags, session, artifact_bucket, artifact_prefix)
    if run_name is None:
        config = _config_of_job(session)
        experiment_name = config["ExperimentName"]
        run_name = config["RunName"].removeprefix(f"{experiment_name}-")
    assert experiment_name is not None
    return Run(experiment_name, run_name, None, None, tags, session, artifact_bucket, artifact_prefix)


def list_runs(
    experiment_name: str,
    created_before: datetime | None = None,
    created_after: datetime | None = None,
    sagemaker_session: Any = None,
    max_results: int | None = None,
    sort_by: str = "CreationTime",
    sort_order: str = "Descending",
) -> Sequence[Run]:
    """Return the runs of an experiment.

    Args:
        experiment_name: Name of the experiment.
        created_before: Only runs created before. Default: all.
        created_after: Only runs created after. Default: all.
        sagemaker_session: As for `Run`.
        max_results: Most runs. Default: all.
        sort_by: ``CreationTime`` or ``Name``.
        sort_order: ``Ascending`` or ``Descending``.

    Returns:
        The runs, in this order.
    """
    session = Session.adopt(sagemaker_session)
    client, experiment = session.sagemaker_client, experiment_name.lower()
    query = present(CreatedBefore=created_before, CreatedAfter=created_after)
    pages = client.get_paginator("list_trial_components").paginate(
        ExperimentName=experiment,
        SortBy=str(getattr(sort_by, "value", sort_by)),
        SortOrder=str(getattr(sort_order, "value", sort_order)),
        **query,
    )
    names: list[str] = []
    for page in pages:
        for each in page["TrialComponentSummaries"]:
            if _TAG in client.list_tags(ResourceArn=each["TrialComponentArn"])["Tags"]:
                names.append(each["TrialComponentName"].removeprefix(f"{experiment}-"))
            if max_results is not None and len(names) == max_results:
                return [Run(experiment, name, sagemaker_session=session) for name in names]
    return [Run(experiment, name, sagemaker_session=session) for name in names]


def _checked(argument: str, name: str) -> str:
    if len(name) > _NAME_MAX:
        raise ValueError(f"{argument}={name!r} has {len(name)} characters; at most {_NAME_MAX} are allowed")
    return name.lower()


def _config_of_job(session: Session) -> Mapping[str, str]:
    """Return the ExperimentConfig of the job that executes this code.

    Raises:
        RuntimeError: It executes in no job, or in a job without a run.
    """
    client = session.sagemaker_client
    job: Mapping[str, Any] = {}
    if "TRAINING_JOB_ARN" in os.environ:
        job = client.describe_training_job(TrainingJobName=os.environ["TRAINING_JOB_ARN"].rpartition("/")[2])
    elif _PROCESSING.exists():
        name = json.loads(_PROCESSING.read_text())["ProcessingJobArn"].rpartition("/")[2]
        job = client.describe_processing_job(ProcessingJobName=name)
    config = job.get("ExperimentConfig", {})
    if "RunName" not in config:
        raise RuntimeError(
            "there is no run to load: give run_name and experiment_name, or create the job within the block of a Run"
        )
    return config
