"""``train``: one training job on one instance, from /opt/ml/input/config to output/failure."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill_runtime import failure, process
from tidemill_runtime.code import SCRIPT, find_entry_point, put_in_place
from tidemill_runtime.compiler import announce
from tidemill_runtime.environment import Environment
from tidemill_runtime.errors import InstallRequirementsError, LaunchError, RuntimeFailure
from tidemill_runtime.events import emit
from tidemill_runtime.hyperparameters import as_arguments
from tidemill_runtime.launchers import Script, command_of, launcher_for
from tidemill_runtime.layout import Layout
from tidemill_runtime.masking import masked, masked_arguments
from tidemill_runtime.model_check import warnings_about
from tidemill_runtime.record_files import cause_of_corrupt_records
from tidemill_runtime.requirements import NEEDS_PACKAGES_STATUS, install, needed_by, report_needs
from tidemill_runtime.sdk_drivers import is_drivers_report, is_remote_function, needed_sdk, replace_driver
from tidemill_runtime.variables import script_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from tidemill_runtime.launchers import Launcher

SUCCEEDED = 0
FAILED = 1


class _NeedsPackages(Exception):
    """The code needs packages that are not installed yet."""

    def __init__(self, requirements: Path) -> None:
        super().__init__(requirements)
        self.requirements = requirements


def train(*, variables: Mapping[str, str], entrypoint: Sequence[str] = ()) -> int:
    """Run the user's script, or the container entry point in its place.

    Args:
        variables: The container's environment.
        entrypoint: A ContainerEntrypoint with its arguments; empty runs the submitted script.

    Returns:
        0 if the script succeeded; 1 if anything failed (``output/failure`` has the reason); 75 if packages must be
        installed first (they are reported through ``TIDEMILL_NEEDS_FD``).
    """
    layout = Layout.of(variables)
    try:
        return run_reporting(lambda: _train(layout, variables=variables, entrypoint=entrypoint), variables=variables)
    except _NeedsPackages as needs:
        report_needs(variables, needs.requirements)
        return NEEDS_PACKAGES_STATUS


def run_reporting(job: Callable[[], int], *, variables: Mapping[str, str]) -> int:
    """Run a job, and write ``output/failure`` if the runtime itself ends it.

    Args:
        job: Returns the exit status of the job.
        variables: The container's environment.

    Returns:
        The exit status; 1 after an error of the runtime.
    """
    signal.signal(signal.SIGTERM, _stopped_early)  # process 1 ignores signals that have no handler
    layout = Layout.of(variables)
    try:
        return job()
    except _NeedsPackages:
        raise
    except RuntimeFailure as error:
        _report(layout, error)
        return FAILED
    except Exception:
        failure.write(layout.failure, f"Framework Error: {traceback.format_exc()[-failure.MAX_CHARACTERS + 17 :]}")
        raise


def run(launcher: Launcher, script: Script, *, layout: Layout, control_fd: int | None) -> int:
    """Start a script, wait until it has ended, and report a failure.

    Args:
        launcher: Starts it.
        script: What to run.
        layout: Paths, for the report.
        control_fd: The shim's pipe; None without one.

    Returns:
        0 if the script succeeded; 1 if it failed (``output/failure`` has the reason).

    Raises:
        LaunchError: The script cannot be started.
    """
    read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
    process.adopt_orphans()
    with process.signal_numbers() as signals_fd:
        try:
            child = launcher.start(script, stderr_fd=write_fd)
        finally:
            os.close(write_fd)
        emit("script.started", command=list(script.shown))
        ended = process.supervise(child, signals_fd=signals_fd, stderr_fd=read_fd, control_fd=control_fd)
    return _report_end(layout, script, ended)


def install_requirements(*, variables: Mapping[str, str], prefix: Path, requirements: Path) -> int:
    """Install the packages that ``train`` requested.

    Returns:
        0, or 1 if pip failed (``output/failure`` has the reason).
    """
    try:
        install(prefix, requirements, variables=variables)
    except RuntimeFailure as error:
        _report(Layout.of(variables), error)
        return FAILED
    return SUCCEEDED


def _train(layout: Layout, *, variables: Mapping[str, str], entrypoint: Sequence[str]) -> int:
    layout.create()
    environment = Environment.read(variables)
    launcher = launcher_for(environment, variables)
    announce(environment)
    script = (
        _container_command(environment, variables, entrypoint)
        if entrypoint
        else _submitted_script(environment, variables)
    )
    report_needs(variables, None)
    control_fd = _control_fd(variables)
    if process.stop_requested(control_fd):
        raise LaunchError("the job was stopped before its script was started")
    status = run(launcher, script, layout=layout, control_fd=control_fd)
    without_model = layout.is_processing or is_remote_function(layout, entrypoint)
    for warning in () if status or without_model else warnings_about(layout.model):
        emit("model.warning", message=warning)
    return status


def _submitted_script(environment: Environment, variables: Mapping[str, str]) -> Script:
    """Return the command of the submitted script."""
    layout = environment.layout
    put_in_place(layout, submit_directory=environment.module_dir)
    entry_point = find_entry_point(layout.code, environment.entry_point)
    requirements = needed_by(entry_point)
    installed = "TIDEMILL_OVERLAY" in variables
    if requirements and not installed:
        raise _NeedsPackages(requirements)
    own = variables.get("TIDEMILL_ENVIRONMENT")
    python = f"{own}/bin/python" if own else sys.executable
    return Script(
        argv=command_of(entry_point, environment.user_arguments, python=python),
        shown=command_of(entry_point, as_arguments(masked(environment.hyperparameters.user)), python=python),
        directory=layout.code,
        variables=script_variables(environment, variables, prefixes=_prefixes(variables)),
        plain_file=entry_point.name if entry_point.kind == SCRIPT and not installed else "",
    )


def _container_command(environment: Environment, variables: Mapping[str, str], entrypoint: Sequence[str]) -> Script:
    """Return the command of a container entry point."""
    requirements = None if "TIDEMILL_OVERLAY" in variables else needed_sdk(environment.layout, entrypoint)
    if requirements:
        raise _NeedsPackages(requirements)
    replace_driver(environment.layout, entrypoint)
    if is_remote_function(environment.layout, entrypoint):
        # Its first program calls sudo for every user but root, whom it has on SageMaker, to make directories writable.
        variables = {"LOGNAME": "root", **variables}
    return Script(
        argv=tuple(entrypoint),
        shown=masked_arguments(entrypoint),
        directory=environment.layout.code,
        variables=script_variables(environment, variables, prefixes=_prefixes(variables)),
    )


def _prefixes(variables: Mapping[str, str]) -> list[str]:
    """Return the environments of the script: its own, that of its packages, and the one below, of this interpreter."""
    named = (variables.get("TIDEMILL_ENVIRONMENT"), variables.get("TIDEMILL_OVERLAY"), sys.prefix)
    return list(dict.fromkeys(prefix for prefix in named if prefix))


def _report_end(layout: Layout, script: Script, ended: process.Ended) -> int:
    emit("script.ended", exit_code=ended.exit_code)
    if ended.exit_code == 0:
        layout.success.touch()
        return SUCCEEDED
    report = failure.read_report(ended.reports or layout.reports, pid=ended.pid)
    if report and is_drivers_report(layout.failure):
        layout.failure.unlink()
    problem = failure.describe_end(
        exit_code=ended.exit_code,
        report=report,
        stderr_tail=ended.stderr_tail,
        where=ended.where,
    )
    cause = cause_of_corrupt_records(f"{problem.kind}: {problem.message}", channels=layout.input / "data")
    if cause:
        problem = replace(problem, message=f"{cause} ({problem.message})")
    failure.write(layout.failure, failure.compose(problem=problem, exit_code=ended.exit_code, command=script.shown))
    return FAILED


def _report(layout: Layout, error: RuntimeFailure) -> None:
    head = type(error).__name__
    if isinstance(error, InstallRequirementsError):
        problem = failure.Problem(message=error.message)
        text = failure.compose(problem=problem, exit_code=error.exit_code, command=error.command, head=head)
    else:
        text = f"{head}: {error}"[: failure.MAX_CHARACTERS]
    failure.write(layout.failure, text)
    emit("job.failed", reason=text)


def _control_fd(variables: Mapping[str, str]) -> int | None:
    text = variables.get("TIDEMILL_CONTROL_FD")
    if not text:
        return None
    fd = int(text)
    os.set_inheritable(fd, False)
    return fd


def _stopped_early(number: int, frame: FrameType | None) -> None:
    """Exit on SIGTERM before there is a script: nothing has to be saved."""
    raise SystemExit(128 + number)
