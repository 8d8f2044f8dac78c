"""Selective execution: the results of an earlier execution that take the place of steps that are not selected."""

from collections.abc import Sequence
from dataclasses import replace

from tidemill.control.pipelines.definition import PipelineDefinition
from tidemill.core.pipelines import PipelineExecution, StepRun, StepStatus
from tidemill.errors import ValidationException


def reused_steps(
    definition: PipelineDefinition, selected: Sequence[str], source: PipelineExecution | None
) -> list[StepRun]:
    """Return the steps whose results are reused.

    Args:
        source: The execution whose results are reused; None if there is none.

    Raises:
        ValidationException: A selected step does not exist, needs a result that the source does not have, or is in the
            branch that the source did not take.
    """
    for name in selected:
        if name not in definition.steps:
            raise _refusal(name, f"there is no such step; steps are {', '.join(definition.steps)}")
    if source is not None and not source.status.terminal:
        raise _refusal(selected[0], f"the execution {source.arn!r} has not ended; wait for its end or stop it")
    done = {run.name: run for run in source.steps if run.status is StepStatus.SUCCEEDED} if source else {}
    reused = {name: run for name, run in done.items() if name in definition.steps and name not in selected}
    for name in selected:
        step = definition.steps[name]
        missing = sorted(step.after - set(selected) - reused.keys())
        if missing:
            whose = "no execution is given" if source is None else f"the execution {source.arn!r} has no result of it"
            raise _refusal(name, f"it needs the step {missing[0]!r}, and {whose}; select it, too")
        outcome = reused[step.condition].outcome if step.condition in reused else step.branch
        if outcome != step.branch:
            raise _refusal(name, f"the condition {step.condition!r} was {outcome} in that execution; select it, too")
    return [
        replace(run, selected_from=source.arn, cached_from="", arguments=None, cache_key="")
        for run in reused.values()
        if source is not None
    ]


def _refusal(name: str, reason: str) -> ValidationException:
    return ValidationException(f"Value {name!r} at 'selectiveExecutionConfig.selectedSteps' is not allowed: {reason}")
