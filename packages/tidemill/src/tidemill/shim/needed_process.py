"""The process that an instance's script needs: the holder of the job's network, or the agent that keeps its lease."""

import os
from collections.abc import Generator
from contextlib import contextmanager

from tidemill.core.files import read_json
from tidemill.core.process import ProcessId
from tidemill.instance.records import Site
from tidemill.sandbox.network import JobNetwork, network_end, network_log
from tidemill.shim.failures import InstanceLost, InternalFailure


def job_network(site: Site) -> JobNetwork | None:
    """Return the job's network, or None if its instances share the machine's.

    Args:
        site: Facts about the machine.

    Raises:
        InternalFailure: The file that describes the network cannot be read.
        InstanceLost: The network is gone.
    """
    if site.network is None:
        return None
    try:
        network = JobNetwork.from_json((read_json(site.network) or {})["network"])
    except (ValueError, KeyError, TypeError) as error:
        raise InternalFailure(f"the network of the job cannot be found: {type(error).__name__}: {error}") from error
    if not network.holder.alive:
        raise InstanceLost(end_of_needed_process(site, network))
    return network


@contextmanager
def needed_process(site: Site, network: JobNetwork | None) -> Generator[int | None]:
    """Yield a pidfd of the process that the script needs; None if it needs none.

    Args:
        site: Facts about the machine.
        network: The job's network, if it has one of its own.

    Raises:
        InstanceLost: The process has ended.
        OSError: The agent has ended.
    """
    process = network.holder if network else _agent(site)
    if process is None:
        yield None
        return
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError as error:
        raise InstanceLost(end_of_needed_process(site, network)) from error
    try:
        yield fd
    finally:
        os.close(fd)


def end_of_needed_process(site: Site, network: JobNetwork | None) -> str:
    """Return a sentence that says which needed process has ended, and what is known about its end.

    Args:
        site: Facts about the machine.
        network: The job's network, if it has one of its own.
    """
    if network is None or site.network is None:
        return "the agent of the instance is gone: its process was killed"
    return network_end(network, log=network_log(site.network))


def _agent(site: Site) -> ProcessId | None:
    if site.agent is None:
        return None
    agent = ProcessId(*(read_json(site.agent) or {"id": ("", 0, 0)})["id"])
    if not agent.alive:
        raise ProcessLookupError("the agent of the instance was killed")
    return agent
