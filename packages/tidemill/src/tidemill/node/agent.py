"""Run one instance for a service on another machine.

The agent does three things at once: it runs the instance through the local executor, it delivers log and phases to the
service, and it sends heartbeats, which renew the lease and return requests to stop. If the service does not answer, the
agent stops the script early enough that it can save its state, and ends all processes before the lease ends. The
service then counts the instance as lost.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from botocore.exceptions import ClientError

from tidemill.core.clock import SystemClock
from tidemill.core.instances import ObjectReference
from tidemill.core.segments import stream_directory
from tidemill.errors import TidemillError
from tidemill.executors.cluster.machine import PROCESS_FILE
from tidemill.executors.local import LocalExecutor
from tidemill.instance.assignment import AgentAssignment
from tidemill.instance.remote_s3 import UploadRefused
from tidemill.instance.status import InstanceExit, InstanceOutcome, InstanceStatus, Phase, RelayReport, StopReason
from tidemill.node.relay import Relay, Relaying
from tidemill.node.service import LOG_CHUNK_BYTES, AttemptOver, ServiceAway, ServiceClient
from tidemill.node.stream import LogBytes, NewSamples
from tidemill.sandbox.private_files import credential_files
from tidemill.shim.report import JobLog

_CONTENT, _CODE, _MODEL = "content", "code", "model"
_TAKEN_AWAY = "InternalServerError: the cluster's scheduler has taken the machine away"
_LOOK_S = 0.2
_RETRY_S = 1.0
_KILLED_AT = 0.9
"""Time without contact after which an instance is killed, as a fraction of the lease."""
_GRACE = 0.4
"""Maximum time before the kill in which the script may save its state, as a fraction of the lease."""
_WAIT = 1 / 6
"""Maximum time for which the service may delay the answer to a heartbeat, as a fraction of the lease.

Small enough that a lease easily spans two heartbeats.
"""
_LONGEST_WAIT_S = 10
_ANSWER = 1 / 12
"""Time for an answer beyond that, as a fraction of the lease.

A service whose machine has vanished refuses no connection. So that its successor gets a heartbeat before the script is
stopped, one unanswered heartbeat takes a small part of the lease.
"""
_SHORTEST_ANSWER_S = 5.0
_LONGEST_ANSWER_S = 20.0


class _Unreadable(Exception):
    """The service refuses an object."""


class Agent:
    """The agent of one attempt.

    Args:
        assignment: The instance to run, and how.
        environments_dir: Directory of the environments, which all agents of this machine share.
    """

    def __init__(self, assignment: AgentAssignment, directory: Path, *, environments_dir: Path) -> None:
        self._assignment = assignment
        self._directory = directory
        self._spec = assignment.spec
        self._ref = assignment.spec.ref
        self._wait_s = min(_LONGEST_WAIT_S, int(_WAIT * assignment.lease_s))
        answer_s = min(_LONGEST_ANSWER_S, max(_SHORTEST_ANSWER_S, _ANSWER * assignment.lease_s))
        keys = assignment.spec.agent_variables or assignment.spec.variables
        self._service = ServiceClient(self._ref, keys, answer_s=self._wait_s + answer_s)
        self._renewed_s = time.monotonic()
        self._phases: tuple[Phase, ...] = ()
        self._delivered = 0
        self._cut_off = False
        self._taken_away = False
        self._relay: Relay | None = None
        self._executor = LocalExecutor(
            gpus=(),  # assigned by the cluster's scheduler, not by agents
            state_dir=directory,
            environments_dir=environments_dir,
            isolation=assignment.isolation,
            instances=1,
            content_file=lambda name: directory / _CONTENT / name,
            logs=directory / "logs",
            hidden=directory.parent,
            private=tuple(credential_files(os.environ)),
            agent=directory / PROCESS_FILE,
        )
        log = self._spec.log
        stream = stream_directory(directory / "logs", log.group, log.stream)
        self._log, self._samples = LogBytes(stream), NewSamples(stream)

    async def run(self) -> None:
        """Run the instance and report its end. End it early if the service says that the attempt is over.

        SIGTERM, by which a scheduler announces that it takes the machine away, interrupts the instance like a spot
        instance: the script may save its state, and the attempt counts as lost.
        """
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._interrupt)
        lease = asyncio.create_task(self._keep_lease())
        work = asyncio.create_task(self._work())
        try:
            await asyncio.wait((lease, work), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                with contextlib.suppress(AttemptOver):
                    work.result()
        finally:
            if self._relay is not None:
                self._relay.close()
            for task in (lease, work):
                task.cancel()
            await asyncio.gather(lease, work, return_exceptions=True)
            await asyncio.to_thread(self._executor.kill, self._ref)
            await asyncio.to_thread(self._executor.reap, self._ref.job_id)
            self._executor.close()

    def _interrupt(self) -> None:
        self._cut_off = self._taken_away = True
        asyncio.get_running_loop().run_in_executor(None, self._stop_interrupted)

    def _stop_interrupted(self) -> None:
        self._executor.stop(self._ref, reason=StopReason.INTERRUPTED)

    async def _work(self) -> None:
        try:
            # An agent that starts late may not know that its lease has ended.
            await self._insist(self._renew)
            ended = await self._let_service_in() or await self._bring() or await self._follow()
        except AttemptOver:
            raise
        except Exception as error:  # noqa: BLE001 - a fault of the agent must appear in the job's FailureReason
            traceback.print_exc()
            ended = _failed(f"InternalServerError: the agent of the instance: {type(error).__name__}: {error}")
        if self._taken_away:
            taken = replace(_failed(_TAKEN_AWAY), lost=True)
            await self._insist(lambda: self._service.report(self._phases, ended=taken))
            return
        if ended is None or self._cut_off:
            await self._insist(lambda: self._service.report(lost=True))
            return
        ended = await self._publish(ended)
        await self._insist(lambda: self._service.report(self._phases, ended=ended))

    async def _let_service_in(self) -> InstanceExit | None:
        """Open the relay to the model server, if there is one. Return a failed result if that is not possible."""
        if self._spec.runs_a_script:
            return None
        host = self._spec.addresses[self._ref.instance_index]
        server = self._executor.server_address(self._ref).path
        try:
            self._relay = Relay(host, Relaying(server=server, secret=self._spec.peer_secret, bring=self._bring_archive))
        except OSError as error:
            return _failed(f"InternalServerError: the agent cannot listen at {host}, its machine's address: {error}")
        report = RelayReport(self._relay.port, self._relay.certificate)
        await self._insist(lambda: self._service.report(relay=report))
        return None

    async def _bring(self) -> InstanceExit | None:
        """Fetch code and model, and start the instance. Return a failed result if the instance cannot start."""
        assignment = self._assignment
        try:
            spec = replace(
                self._spec,
                code=await self._fetched(assignment.code, _CODE),
                model=await self._fetched(assignment.model, _MODEL),
            )
            await asyncio.to_thread(self._executor.launch, [spec])
        except _Unreadable as error:
            return _failed(f"ClientError: {error}")
        except (OSError, TidemillError) as error:
            return _failed(f"InternalServerError: {error}")
        return None

    async def _fetched(self, source: ObjectReference | None, name: str) -> ObjectReference | None:
        """Download an object to the content ``name`` of this machine, and return its reference there.

        Raises:
            _Unreadable: The service refuses it.
        """
        if source is None:
            return None
        content = self._directory / _CONTENT
        content.mkdir(mode=0o700, exist_ok=True)
        try:
            await self._insist(lambda: self._service.download(source, content / name))
        except ClientError as error:
            raise _Unreadable(f"{source.uri} cannot be read: {error}") from error
        return replace(source, content_id=name)

    async def _bring_archive(self, archive: ObjectReference, name: str) -> str:
        """Copy an archive to the instance under a name. Return why that is not possible; empty if it is done."""
        try:
            fetched = await self._fetched(archive, name)
            assert fetched is not None
            await asyncio.to_thread(self._executor.deliver, self._ref, fetched, name=name)
        except (_Unreadable, OSError, TidemillError) as error:
            return str(error)
        finally:
            (self._directory / _CONTENT / name).unlink(missing_ok=True)
        return ""

    async def _follow(self) -> InstanceExit | None:
        """Deliver log and phases until the instance has ended. Return None if it ended without a result."""
        while True:
            await self._executor.changed(timeout_s=_LOOK_S)
            status = await asyncio.to_thread(self._executor.observe, self._ref)
            with contextlib.suppress(ServiceAway):
                await asyncio.to_thread(self._deliver)
                await asyncio.to_thread(self._report_phases, status)
                await asyncio.to_thread(self._samples.deliver, self._service.deliver_samples)
            if not status.running:
                if status.last_words and not self._cut_off:
                    self._note(f"tidemill: {status.loss}")
                await self._insist(self._deliver)
                await self._insist(lambda: self._samples.deliver(self._service.deliver_samples))
                return status.exit

    def _say(self, why: str) -> None:
        """Write to the agent's own output, which the scheduler of the cluster keeps."""
        sys.stderr.write(f"tidemill: the agent of {self._ref.mark} ends: {why}\n")

    def _note(self, line: str) -> None:
        """Add a line to the log of an instance whose shim has ended."""
        name = self._spec.log
        log = JobLog(stream_directory(self._directory / "logs", name.group, name.stream))
        log.note(line)
        log.close()

    def _deliver(self) -> None:
        while lines := self._log.read(self._delivered, max_bytes=LOG_CHUNK_BYTES):
            self._delivered = self._service.deliver(lines, offset=self._delivered)

    def _report_phases(self, status: InstanceStatus) -> None:
        if status.phases != self._phases:
            self._service.report(status.phases)
            self._phases = status.phases

    async def _publish(self, ended: InstanceExit) -> InstanceExit:
        """Upload the artifacts of the first instance to their bucket."""
        if self._ref.instance_index or not self._spec.artifacts_uri:
            return ended
        for name in ended.artifacts:
            file = self._executor.publication(self._ref, name)
            if file is None:
                return _failed(f"InternalServerError: {name}.tar.gz of the job is gone", of=ended)
            uri = f"{self._spec.artifacts_uri}/{name}.tar.gz"
            try:
                await self._insist(lambda file=file, uri=uri: self._service.upload(file, uri))  # type: ignore[misc]
            except UploadRefused as error:
                return _failed(f"ClientError: cannot store {uri}: {error}", of=ended)
        return ended

    async def _keep_lease(self) -> None:
        """Renew the lease until the attempt is over, or the service has not answered for too long."""
        lease_s = self._assignment.lease_s
        grace_s = min(self._spec.grace_s, _GRACE * lease_s)
        beats = asyncio.create_task(self._beat())
        try:
            while not beats.done():
                await asyncio.wait((beats,), timeout=_LOOK_S)
                away_s = time.monotonic() - self._renewed_s
                if away_s > _KILLED_AT * lease_s:
                    self._say(f"the service has not answered for {away_s:.0f} s; its lease has {lease_s:g} s")
                    return
                if away_s > _KILLED_AT * lease_s - grace_s and not self._cut_off:
                    # This attempt counts as lost, but the next attempt can use what the script saves now.
                    self._cut_off = True
                    await asyncio.to_thread(self._stop_interrupted)
        finally:
            beats.cancel()

    async def _beat(self) -> None:
        """Send heartbeats, and stop the instance when the service requests it. Return when the attempt is over."""
        wait_s = self._wait_s
        while True:
            try:
                stop = await asyncio.to_thread(self._renew, wait_s=wait_s)
            except AttemptOver as error:
                self._say(str(error))
                return
            except ServiceAway:
                await asyncio.sleep(_RETRY_S)
                wait_s = 0  # when the service is back, the agent must know at once that it may go on
                continue
            wait_s = self._wait_s
            if stop is not None:
                await asyncio.to_thread(self._executor.stop, self._ref, reason=stop)
                await asyncio.sleep(_RETRY_S)  # the service answers at once from now on

    def _renew(self, *, wait_s: int = 0) -> StopReason | None:
        """Send a heartbeat; see `ServiceClient.report`. The lease lasts from the time at which it was sent."""
        asked_s = time.monotonic()
        stop = self._service.report(wait_s=wait_s)
        self._renewed_s = max(self._renewed_s, asked_s)
        return stop

    async def _insist(self, request: Callable[[], object]) -> None:
        """Repeat a request until the service answers. The end of the lease cancels this task."""
        while True:
            try:
                await asyncio.to_thread(request)
            except ServiceAway:
                await asyncio.sleep(_RETRY_S)
            else:
                return


def _failed(reason: str, *, of: InstanceExit | None = None) -> InstanceExit:
    """Return the result of an instance that cannot run, or whose artifacts cannot be stored."""
    if of is not None:
        return replace(of, outcome=InstanceOutcome.FAILED, failure=reason[:1024], artifacts={})
    return InstanceExit(outcome=InstanceOutcome.FAILED, failure=reason[:1024], ended_ms=SystemClock().now_ms())
