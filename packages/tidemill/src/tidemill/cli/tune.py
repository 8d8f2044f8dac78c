"""`tidemill tune`: search for the values of a script's hyperparameters."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.failures import CommandFailed
from tidemill.cli.job_options import (
    FollowOption,
    FrameworkOption,
    HyperparameterOption,
    InputOption,
    InstanceTypeOption,
    JobNameOption,
    MaxRunOption,
    ScriptArgument,
    SourceDirOption,
    channels,
    hyperparameter,
    metric_definition,
    pairs,
    script_arguments,
)
from tidemill.cli.options import EndpointOption, JsonOption, StateDirOption
from tidemill.cli.text import print_json, print_table

if TYPE_CHECKING:
    from tidemill.sdk import HyperparameterTuner

app = typer.Typer(add_completion=False)

_SCALES = {"linear": "Linear", "log": "Logarithmic", "reverse": "ReverseLogarithmic", "auto": "Auto"}
_SHOWN = 10


_RangeOption = Annotated[
    list[str],
    typer.Option(
        "--range",
        "-r",
        metavar="NAME=LOW:HIGH[:SCALE]|NAME=A,B,...",
        help="What to tune; repeatable. SCALE is linear, log, reverse or auto; integers if both ends are.",
    ),
]
_JobsOption = Annotated[int | None, typer.Option(min=1, help="Number of trainings (default: 10; a grid has all).")]
_ParallelOption = Annotated[int, typer.Option(min=1, help="Trainings at the same time.")]
_ObjectiveOption = Annotated[
    str,
    typer.Option(
        metavar="NAME[=REGEX]",
        help="What to optimize. Without REGEX the log's 'val_NAME: 0.1' or 'NAME: 0.1', as Keras writes it.",
    ),
]
_MaximizeOption = Annotated[bool, typer.Option("--maximize/--minimize", help="Whether higher values are better.")]
_StrategyOption = Annotated[str, typer.Option(help="bayesian, random, grid or hyperband.")]
_EarlyOption = Annotated[bool, typer.Option(help="Stop trainings that are worse than the median.")]
_SeedOption = Annotated[int | None, typer.Option(min=0, help="Seed of the search.")]


@app.command()
def tune(
    script: ScriptArgument,
    ranges: _RangeOption,
    jobs: _JobsOption = None,
    parallel: _ParallelOption = 1,
    metric: _ObjectiveOption = "loss",
    maximize: _MaximizeOption = False,
    strategy: _StrategyOption = "bayesian",
    early_stopping: _EarlyOption = False,
    seed: _SeedOption = None,
    source_dir: SourceDirOption = None,
    inputs: InputOption = None,
    hp: HyperparameterOption = None,
    instance_type: InstanceTypeOption = "local",
    framework_version: FrameworkOption = None,
    job_name: JobNameOption = None,
    max_run: MaxRunOption = None,
    wait: FollowOption = True,
    json: JsonOption = False,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Train SCRIPT with many values of its hyperparameters, and print the best. Ctrl-C stops the tuning job."""
    from tidemill.cli.service import ServiceChoice, ensure_service

    choice = ServiceChoice.of(state_dir=state_dir, endpoint_url=endpoint_url)
    searched = {name: _range(name, text) for name, text in pairs("--range", ranges)}
    definition, data = metric_definition(metric), channels(inputs)
    common = script_arguments(choice.settings, version=framework_version, source_dir=source_dir, hp=hp, max_run=max_run)
    from tidemill.sdk import HyperparameterTuner, Session, TensorFlow

    try:
        estimator = TensorFlow(
            str(script),
            role="tidemill",
            instance_type=instance_type,
            py_version="py3",
            metric_definitions=[definition],
            sagemaker_session=Session(ensure_service(choice).session),
            **common,
        )
        tuner = HyperparameterTuner(
            estimator,
            definition["Name"],
            searched,
            strategy=strategy.capitalize(),
            objective_type="Maximize" if maximize else "Minimize",
            max_jobs=jobs if jobs is not None or strategy.lower() == "grid" else 10,
            max_parallel_jobs=parallel,
            early_stopping_type="Auto" if early_stopping else "Off",
            random_seed=seed,
        )
        tuner.fit(data or None, job_name=job_name, wait=False)
    except ValueError as error:
        raise CommandFailed(str(error)) from error
    if wait:
        _wait(tuner, json=json)
    elif json:
        print_json({"name": tuner.latest_tuning_job.name, "status": "InProgress", "trainings": []})
    else:
        typer.echo(f"{tuner.latest_tuning_job.name} was submitted; `tidemill describe` shows its best training job")


def _wait(tuner: "HyperparameterTuner", *, json: bool) -> None:
    job = tuner.latest_tuning_job
    try:
        job.wait()
    except KeyboardInterrupt:
        job.stop()
        typer.echo(f"stopping tuning job {job.name} and its trainings; `tidemill describe {job.name}` shows the best")
        raise
    valued = [each for each in job.trainings() if "FinalHyperParameterTuningJobObjectiveMetric" in each]
    ordered = sorted(valued, key=_value, reverse=tuner.objective_type == "Maximize")
    if json:
        status = job.describe()["HyperParameterTuningJobStatus"]
        print_json({"name": job.name, "status": status, "trainings": [_entry(each) for each in ordered]})
        return
    names = sorted({name for each in ordered for name in each["TunedHyperParameters"]})
    rows = [
        (each["TrainingJobName"], f"{_value(each):g}", *(each["TunedHyperParameters"].get(name, "") for name in names))
        for each in ordered[:_SHOWN]
    ]
    print_table(("TRAINING JOB", (tuner.objective_metric_name or "objective").upper(), *names), rows)


def _entry(training: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": training["TrainingJobName"],
        "objective": _value(training),
        "hyperparameters": training["TunedHyperParameters"],
    }


def _value(training: dict[str, Any]) -> float:
    return training["FinalHyperParameterTuningJobObjectiveMetric"]["Value"]


def _range(name: str, text: str) -> Any:
    """Return the range of ``LOW:HIGH[:SCALE]`` or ``A,B,...``."""
    from tidemill.sdk import CategoricalParameter, ContinuousParameter, IntegerParameter

    ends = text.split(":")
    if len(ends) == 1:
        return CategoricalParameter(text.split(","))
    low, high = (hyperparameter(end) for end in ends[:2])
    scale = _SCALES.get(ends[2].lower()) if len(ends) == 3 else "Auto"
    if len(ends) > 3 or scale is None or isinstance(low, str) or isinstance(high, str):
        allowed = f"LOW:HIGH or LOW:HIGH:SCALE with one of {', '.join(_SCALES)}, or A,B,..."
        raise typer.BadParameter(f"{name}={text!r} is not a range; expected {allowed}", param_hint="--range")
    kind = IntegerParameter if isinstance(low, int) and isinstance(high, int) else ContinuousParameter
    try:
        return kind(low, high, scale)
    except ValueError as error:
        raise typer.BadParameter(f"{name}={text!r}: {error}", param_hint="--range") from error
