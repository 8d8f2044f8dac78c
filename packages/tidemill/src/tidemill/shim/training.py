"""Run a training or processing instance: prepare environment and channels, run the script, pack the artifacts."""

import os
import platform
from dataclasses import dataclass, replace

from tidemill.core import faults
from tidemill.environments.builder import JobEnvironment
from tidemill.instance.remote_stores import RemoteStores
from tidemill.instance.spec import PROCESSING
from tidemill.instance.status import Artifact, InstanceExit, InstanceOutcome, StopReason
from tidemill.shim.archives import fetch
from tidemill.shim.beneath import read_beneath
from tidemill.shim.channels import Channels, bring_channels
from tidemill.shim.failures import (
    ClientFailure,
    InstanceFailure,
    InstanceLost,
    InternalFailure,
    of_os_error,
)
from tidemill.shim.fast_files.servers import FastFiles, Serving, prepare_fast_files
from tidemill.shim.feeder import PipeFeeder
from tidemill.shim.limits import LimitWatch, chosen_cpus
from tidemill.shim.needed_process import end_of_needed_process, needed_process
from tidemill.shim.objects import is_segment
from tidemill.shim.packages import Installed, Needs, Packages, has_report, record_of, reported_failure
from tidemill.shim.packing import pack
from tidemill.shim.session import InstanceSession
from tidemill.shim.stopping import Stopped
from tidemill.shim.supervision import CommandEnd, CommandLimits, Running, supervise
from tidemill.shim.synchronization import restore, synced

_TERMINATION_NOTE = {
    StopReason.STOPPED: "tidemill: stop requested; the script has {grace_s:g} s to save its work",
    StopReason.MAX_RUNTIME: "tidemill: MaxRuntimeInSeconds is reached; the script has {grace_s:g} s to save its work",
    StopReason.INTERRUPTED: "tidemill: the instance is interrupted; the script has {grace_s:g} s to save its work, and"
    " the job starts again from its checkpoints",
    StopReason.PEER_FAILED: "tidemill: another instance of the job has failed; the script has {grace_s:g} s to end",
}
_MESSAGE_MAX_CHARACTERS = 1024
_MESSAGE_MAX_BYTES = 4 * _MESSAGE_MAX_CHARACTERS
_REMOTE_FUNCTION = "/sagemaker_remote_function_bootstrap/"
"""Part of the command of AWS's SDK's ``@remote``: the channel with its program."""
_UNPUBLISHED = (
    "tidemill: {host} has written to {place}: only the model of algo-1 is published, as on SageMaker. Save the model on"
    " algo-1, or write to the checkpoints or to S3"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trained:
    """The result of the script, and the times of its run."""

    outcome: InstanceOutcome
    failure: InstanceFailure | None
    started_ms: int
    ended_ms: int
    peak_rss_bytes: int
    installed: Installed


def run_training(session: InstanceSession) -> InstanceExit:
    """Run a training instance to its end.

    Raises:
        InstanceFailure: The instance failed before the script ran.
        Stopped: A stop was requested before the script ran.
    """
    environment = session.prepare()
    feeder, channels, fast_files = _download(session)
    faults.point("shim.downloaded")
    run = _Run(session, environment, feeder, channels, fast_files)
    with synced(session) as uploads:
        trained = run.train()
        uploads.keeps_outputs = trained.outcome is not InstanceOutcome.FAILED
    if uploads.failure and trained.outcome is not InstanceOutcome.FAILED:
        trained = replace(trained, outcome=InstanceOutcome.FAILED, failure=uploads.failure)
    channels.note_use()
    if trained.outcome is InstanceOutcome.COMPLETED and feeder.failure:
        # A script that reads a FIFO directly cannot detect that its data ended early.
        trained = replace(trained, outcome=InstanceOutcome.FAILED, failure=feeder.failure)
    session.report.enter("Uploading", "Uploading generated training model")
    artifacts, failure = _artifacts(session, trained)
    faults.point("shim.packed")
    return InstanceExit(
        outcome=InstanceOutcome.FAILED if failure else trained.outcome,
        failure=str(failure or ""),
        lost=isinstance(failure, InstanceLost),
        ended_ms=session.clock.now_ms(),
        training_started_ms=trained.started_ms,
        training_ended_ms=trained.ended_ms,
        artifacts=artifacts,
        record={**_record(session, environment, run.command, trained.installed), **_exit_message(session)},
        peak_rss_bytes=trained.peak_rss_bytes,
    )


class _Run:
    """Runs the runtime; if the user's code needs packages, installs them and runs the runtime again."""

    def __init__(
        self,
        session: InstanceSession,
        environment: JobEnvironment,
        feeder: PipeFeeder,
        channels: Channels,
        fast_files: FastFiles,
    ) -> None:
        self._session = session
        self._environment = environment
        self._feeder = feeder
        self._channels = channels
        self._fast_files = fast_files
        spec = session.spec
        self._arguments = ["train", *(["--", *_command(session)] if spec.entrypoint else [])]
        self.command = [str(environment.python), "-m", "tidemill_runtime", *self._arguments]
        self._watch = LimitWatch(spec.limits, session.directory, session.log.note)
        self._deadline_s: float | None = None
        self._started_ms = 0

    def train(self) -> _Trained:
        session = self._session
        session.report.enter("Training", "The script runs")
        session.stop.check()
        self._started_ms = session.clock.now_ms()
        if session.spec.max_runtime_s:
            self._deadline_s = session.clock.monotonic_s() + session.spec.max_runtime_s
        packages = Packages(session, self._environment, self._deadline_s)
        bare = packages.prepare()
        ended, needed = self._runtime(bare)
        if not needed or ended.stop is not None:
            return self._trained(ended, bare)
        try:
            installed = packages.install(needed)
        except Stopped as stopped:
            return self._trained(replace(ended, stop=stopped.reason), bare)
        except InstanceFailure as failure:
            return self._trained(ended, bare, failure=failure)
        ended, _ = self._runtime(installed)
        return self._trained(ended, installed)

    def _runtime(self, installed: Installed) -> tuple[CommandEnd, str]:
        """Run the runtime. Return how it ended, and the requirements.txt or setup.py to install first, if any."""
        needs = Needs()
        try:
            with self._fast_files.running() as serving:
                ended = self._run(installed, serving, needs)
        except OSError as error:
            raise InternalFailure(f"the runtime cannot be started: {error}") from error
        return ended, needs.read()

    def _run(self, installed: Installed, serving: Serving, needs: Needs) -> CommandEnd:
        session = self._session
        view = session.view(self._environment)
        # A script with its own packages starts cold: they may replace modules that the warm process has imported.
        warm_socket = None if installed.has_packages else session.warm_socket
        view = serving.added_to(self._channels.added_to(installed.added_to(view)))
        if warm_socket:
            view = replace(view, read_only=(*view.read_only, warm_socket))
        cache = session.compiler_cache()
        if cache:
            view = replace(view, writable=(*view.writable, cache))
        variables = session.variables(self._environment, view, first_on_path=installed.commands)
        variables |= installed.variables
        read_fd, write_fd = os.pipe()
        variables["TIDEMILL_CONTROL_FD"] = str(read_fd)
        variables[Needs.VARIABLE] = str(needs.fd)
        if cache:
            variables["TIDEMILL_COMPILER_CACHE"] = str(cache)
        if warm_socket:
            variables["TIDEMILL_WARM_SOCKET"] = str(warm_socket)
        launch = session.wrap_module(
            "tidemill_runtime", self._arguments, environment=self._environment, view=view, variables=variables
        )
        launch = replace(launch, descriptors=(*launch.descriptors, needs.fd))
        limits = CommandLimits(grace_s=session.spec.grace_s, deadline_s=self._deadline_s)

        def ask(running: Running) -> None:
            reason = session.stop.reason or StopReason.MAX_RUNTIME
            session.log.note(_TERMINATION_NOTE[reason].format(grace_s=limits.grace_of(reason)))
            running.ask_runtime()

        with (
            needed_process(session.task.site, session.network) as needed,
            self._feeder.running() as start_feeding,
            self._watch.watching(),
        ):

            def started() -> None:
                faults.point("shim.launched")
                start_feeding()
                serving.start()

            return supervise(
                launch,
                log=session.log,
                stop=session.stop,
                clock=session.clock,
                limits=limits,
                ask=ask,
                control=(read_fd, write_fd),
                # In plain mode only the runtime can end the script's processes, so it must outlive the shim.
                dies_with_shim=session.sandbox.name != "plain",
                started=started,
                ended=serving.ended,
                needs=needed,
                cpus=chosen_cpus(session.spec),
                cgroup=self._watch.cgroup,
            )

    def _trained(self, ended: CommandEnd, installed: Installed, *, failure: InstanceFailure | None = None) -> _Trained:
        outcome = InstanceOutcome.COMPLETED
        if ended.stop:
            outcome, failure = ended.stop.outcome, None
        elif ended.lost:
            outcome = InstanceOutcome.FAILED
            failure = InstanceLost(end_of_needed_process(self._session.task.site, self._session.network))
            self._session.log.note(f"tidemill: {failure.reason}")
        elif self._watch.failure is not None:
            outcome, failure = InstanceOutcome.FAILED, self._watch.failure
        elif failure is not None or ended.exit_code or self._reports_failure_alone():
            outcome = InstanceOutcome.FAILED
            failure = failure or reported_failure(
                self._session.directory.ml,
                ended,
                command=" ".join(self.command[1:]),
                out_of_memory=self._watch.out_of_memory,
            )
            failure = self._fast_files.cause_of(failure)
        return _Trained(
            outcome=outcome,
            failure=failure,
            started_ms=self._started_ms,
            ended_ms=self._session.clock.now_ms(),
            peak_rss_bytes=ended.peak_rss_bytes,
            installed=installed,
        )

    def _reports_failure_alone(self) -> bool:
        """Return whether a remote function of AWS's SDK failed although its command ended with status 0.

        If its result cannot be written to S3, mostly its error cannot either. The SDK's program then ends with status
        0, and the reason is only in ``output/failure``.
        """
        is_remote_function = any(_REMOTE_FUNCTION in each for each in self._session.spec.entrypoint)
        return is_remote_function and has_report(self._session.directory.ml)


def _command(session: InstanceSession) -> list[str]:
    """Return the container's entry point with its arguments.

    The paths of a processing job are in its request, so those below ``/opt/ml/processing`` are replaced if nothing is
    mounted there.
    """
    spec, place = session.spec, f"{session.base_dir}/processing"
    if spec.kind != PROCESSING:
        return list(spec.entrypoint)
    return [each.replace("/opt/ml/processing", place) for each in spec.entrypoint]


def _download(session: InstanceSession) -> tuple[PipeFeeder, Channels, FastFiles]:
    """Provide code, checkpoints and channels: files for channels in File mode, the first FIFO for Pipe mode."""
    spec = session.spec
    session.report.enter("Downloading", "Downloading input data")
    if session.task.code:
        fetch(session, session.task.code, "sourcedir.tar.gz")
    pipes, stores = session.task.pipes, RemoteStores(spec.remotes, spec.variables)
    for name in (*session.task.channels, *session.task.fast_files, *(f"{pipe.name}_0" for pipe in pipes)):
        if not is_segment(name):
            raise ClientFailure(f"channel name {name[:80]!r} cannot name a directory")
    channels, fast_files = bring_channels(session, stores), prepare_fast_files(session)
    restore(session, stores)
    faults.point("shim.restored")
    session.stop.check()
    try:
        feeder = PipeFeeder(
            session.directory,
            pipes,
            stores=stores,
            log=session.log.note,
            clock=session.clock,
        )
    except OSError as error:
        raise of_os_error(error, place=f"{session.base_dir}/input/data") from error
    return feeder, channels, fast_files


def _artifacts(session: InstanceSession, trained: _Trained) -> tuple[dict[str, Artifact], InstanceFailure | None]:
    """Pack the job's artifacts. The job fails if its model cannot be packed, or, if it succeeded, its output."""
    directory, spec, failure = session.directory, session.spec, trained.failure
    artifacts: dict[str, Artifact] = {}
    if spec.kind == PROCESSING:
        return {}, failure
    wanted = {"output": "output/data"}
    if trained.outcome is not InstanceOutcome.FAILED:
        wanted = {"model": "model", **wanted}
    for name, relative in wanted.items():
        try:
            target, place = directory.artifacts / f"{name}.tar.gz", f"{session.base_dir}/{relative}"
            made = pack(directory.ml, relative, target, place=place, note=session.log.note)
        except InstanceFailure as error:
            session.log.note(f"tidemill: {error}")
            failure = failure or error
        else:
            if made:
                artifacts[name] = made
            if made and name == "model" and spec.ref.instance_index:
                session.log.note(_UNPUBLISHED.format(host=spec.hosts[spec.ref.instance_index], place=place))
    if failure:
        artifacts.pop("model", None)
    return artifacts, failure


def _exit_message(session: InstanceSession) -> dict[str, str]:
    """Return what the command of a processing job left in ``output/message``, as a part of the job's record."""
    text = None
    if session.spec.kind == PROCESSING:
        text = read_beneath(session.directory.ml, "output/message", max_bytes=_MESSAGE_MAX_BYTES)
    return {"exit_message": text.decode(errors="ignore")[:_MESSAGE_MAX_CHARACTERS]} if text else {}


def _record(
    session: InstanceSession, environment: JobEnvironment, command: list[str], installed: Installed
) -> dict[str, object]:
    code = session.task.code
    return {
        "environment": environment.name,
        "environment_key": environment.key,
        "lock_sha256": environment.lock_sha256,
        **record_of(installed),
        "python": platform.python_version(),
        "command": command,
        "code_sha256": code.sha256 if code else "",
        "isolation": str(session.isolation),
        "sandbox": session.sandbox.name,
    }
