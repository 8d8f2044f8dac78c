"""How many connections the service accepts: each takes a file descriptor, and each instance of a cluster keeps one."""

import resource

from tidemill.server.asgi import LIMITS

__all__ = ["connections_allowed", "make_room_for_agents"]

AGENTS_MAX = 100_000
"""Connections for which a service with a cluster makes room, if the system allows that many descriptors."""

_OTHER_DESCRIPTORS = 1024
"""Files, pipes and the database, besides connections."""


def make_room_for_agents() -> None:
    """Raise the limit of this process's descriptors. Processes that it starts from now on inherit the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = AGENTS_MAX + _OTHER_DESCRIPTORS
    wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_allowed() -> int:
    """Return how many connections the limit of descriptors leaves room for, but never fewer than `LIMITS` says."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = AGENTS_MAX if soft == resource.RLIM_INFINITY else soft - _OTHER_DESCRIPTORS
    return max(LIMITS.connections, min(AGENTS_MAX, free))
