"""ReportInstance, DeliverLog and DeliverSamples: the reports of agents of instances on other machines.

Requests are signed with the keys of the job. A new attempt gets new keys, so requests of an older attempt are refused
before they arrive here.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from tidemill.core.instances import InstanceRef
from tidemill.errors import AwsError
from tidemill.executors.cluster.report_times import wait_of_report_s
from tidemill.executors.cluster.reports import InstanceReports, UnknownInstance
from tidemill.instance.status import Phase, RelayReport
from tidemill.services.operations import Operations
from tidemill.wire.exchange import Context


class InstancesService(Operations):
    """Receives the reports of agents.

    Args:
        instances: The records of the instances.
    """

    def __init__(self, instances: InstanceReports) -> None:
        self._instances = instances

    async def report_instance(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Record a report. Answer when the instance has to stop, at the latest after ``WaitSeconds``."""
        ref, session = _ref(request), _session_of(context)
        phases = tuple(Phase(p["Status"], p["StartedMs"], p.get("Message", "")) for p in request.get("Phases", ()))
        ended, lost = request.get("Exit", ""), request.get("Lost", False)
        found = request.get("Relay")
        relay = RelayReport(found["Port"], found["Certificate"]) if found else None
        try:
            # Renew before waiting for a thread: while many jobs start, a thread may be free only after the lease.
            stop = await self._instances.renew(ref, session=session)
            if phases or ended or lost or relay:
                stop = await asyncio.to_thread(
                    self._instances.report, ref, session=session, phases=phases, ended=ended, lost=lost, relay=relay
                )
        except UnknownInstance as error:
            raise _over(error) from error
        except ValueError as error:
            raise AwsError(f"Exit is not the result of an instance: {error}.", code="ValidationException") from error
        if stop is None and not ended:
            now_s = asyncio.get_running_loop().time()
            wait_s = wait_of_report_s(ref, now_s=now_s, period_s=request.get("WaitSeconds", 0))
            stop = await self._instances.await_stop(ref, timeout_s=wait_s)
        return {
            "LeaseSeconds": self._instances.lease_s,
            **({"StopReason": stop.value} if stop else {}),
        }

    async def deliver_log(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Store log lines, without those that the service already has. Without lines, return the offset."""
        try:
            received = await asyncio.to_thread(
                self._instances.deliver,
                _ref(request),
                request["Lines"],
                session=_session_of(context),
                offset=request["Offset"],
            )
        except UnknownInstance as error:
            raise _over(error) from error
        except ValueError as error:
            raise AwsError(f"{error}.", code="ValidationException") from error
        return {"ReceivedBytes": received}

    async def deliver_samples(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Store samples of what an instance uses."""
        try:
            await asyncio.to_thread(
                self._instances.deliver_samples, _ref(request), request["Lines"], session=_session_of(context)
            )
        except UnknownInstance as error:
            raise _over(error) from error
        except ValueError as error:
            raise AwsError(f"{error}.", code="ValidationException") from error
        return {}


def _ref(request: Mapping[str, Any]) -> InstanceRef:
    return InstanceRef(request["JobId"], request["InstanceIndex"], request["Attempt"])


def _session_of(context: Context) -> str:
    """Return the name of the session of the keys that signed the request; for keys of users one that no job has."""
    return context.caller.arn.rpartition("/")[2] if ":assumed-role/" in context.caller.arn else ""


def _over(error: UnknownInstance) -> AwsError:
    return AwsError(f"{error}: end the instance.", code="AttemptOver")
