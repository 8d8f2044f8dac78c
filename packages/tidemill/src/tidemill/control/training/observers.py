"""Write the configurations of SageMaker's debugger and profiler to files, for a library that the script brings.

tidemill has neither a debugger nor a profiler. On SageMaker, the platform writes these files and a library in the image
reads them. So a script that brings such a library works here, too.
"""

from collections.abc import Iterator, Mapping
from typing import Any

_TENSORS = "/opt/ml/output/tensors"
"""SageMaker's default for LocalPath."""
_DEFAULT_RULE = "ProfilerReport"
"""Beginning of the name of the rule that SDK v2 sends by default."""
_ASKED = {
    "DebugHookConfig": ("HookParameters", "CollectionConfigurations"),
    "ProfilerConfig": ("ProfilingParameters",),
}
"""Members that select what to save. Without them nothing is to be saved: SDK v2 sends the other members by default."""


def observer_files(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``debughookconfig`` and ``profilerconfig`` by name, for those of the two that a training job has.

    Args:
        request: Members of CreateTrainingJob.
    """
    files: dict[str, Any] = {}
    if "DebugHookConfig" in request:
        files["debughookconfig"] = {"LocalPath": _TENSORS, **request["DebugHookConfig"]}
    profiler = request.get("ProfilerConfig", {})
    if profiler and not profiler.get("DisableProfiler"):
        files["profilerconfig"] = profiler
    return files


def observer_notices(request: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a line for the job's log for each configuration that selects what to save, and one for rules.

    Args:
        request: Members of CreateTrainingJob.
    """
    return (*_unsaved(request), *_unevaluated(request))


def _unsaved(request: Mapping[str, Any]) -> Iterator[str]:
    yield from (
        f"tidemill: {structure} selects what to save, which is left to a library of the script: there is no"
        f" {'debugger' if structure == 'DebugHookConfig' else 'profiler'} here. The script finds it in"
        f" /opt/ml/input/config/{structure.lower()}.json"
        for structure, members in _ASKED.items()
        if any(request.get(structure, {}).get(member) for member in members)
    )


def _unevaluated(request: Mapping[str, Any]) -> Iterator[str]:
    rules = (*request.get("DebugRuleConfigurations", ()), *request.get("ProfilerRuleConfigurations", ()))
    names = [rule["RuleConfigurationName"] for rule in rules]
    if chosen := [name for name in names if not name.startswith(_DEFAULT_RULE)]:
        yield f"tidemill: no rule is evaluated, because there is no debugger here: {', '.join(chosen)}"
