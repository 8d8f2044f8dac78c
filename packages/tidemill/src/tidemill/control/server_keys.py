"""The keys of model servers: those of endpoints and of batch transform jobs.

A server may run for months, so its keys are valid for twelve hours, and are renewed in the store while it runs. The
keys themselves stay the same, because clients read the environment only once.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tidemill.control.credentials import Credentials
from tidemill.core.job_scope import JobScope
from tidemill.core.names import role_name

_LIFETIME_S = 12 * 3600.0
_NO_ROLE = "no-role"
"""Stands for the role of a model without one, in the keys of agents. No role of SageMaker's clients has this name."""
_OWN_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE")


class ServerVariables(NamedTuple):
    """Environment variables with the address of the service and keys.

    Attributes:
        server: Those of the model server; may be empty.
        agent: Those of the agent of an instance on another machine.
    """

    server: Mapping[str, str]
    agent: Mapping[str, str]


class ServerKeys:
    """Issues and renews the keys of model servers.

    Args:
        service_variables: Environment variables that point a server at this service.
    """

    def __init__(self, credentials: Credentials, *, service_variables: Mapping[str, str]) -> None:
        self._credentials = credentials
        self._service_variables = service_variables

    async def issue(
        self, job_id: str, *, model: Mapping[str, Any], environment: Mapping[str, str], scope: JobScope
    ) -> "ServerVariables":
        """Create the keys of a server. Repeating it returns the same keys.

        Args:
            job_id: Id of the instance or the transform job.
            model: The CreateModel request; the keys act as its ExecutionRoleArn. Without one the server has no keys.
            environment: Variables that the user has set. If they contain keys, the server has no others.
            scope: The endpoint or transform job.
        """
        role = role_name(model.get("ExecutionRoleArn", ""))
        keys = await self._credentials.issue_to_server(
            job_id, role=role or _NO_ROLE, scope=scope, lifetime_s=_LIFETIME_S
        )
        variables = {**self._service_variables, **keys.variables}
        has_none = not role or any(name in environment for name in _OWN_KEYS)
        return ServerVariables({} if has_none else variables, variables)

    async def renew(self, job_id: str) -> None:
        """Extend the validity of a server's keys, if less than half of it is left.

        Args:
            job_id: Id of the instance's job.
        """
        await self._credentials.renew(job_id, lifetime_s=_LIFETIME_S)
