"""Send the requests of steps through the gateway's own checks, with the rights of an execution."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from tidemill.core.job_scope import HolderKind, JobScope
from tidemill.core.names import ACCOUNT_ID
from tidemill.core.pipelines import PipelineExecution
from tidemill.core.roles import Roles
from tidemill.errors import AwsError, ServiceUnavailable
from tidemill.wire.signing.credentials import Credential, CredentialLookup

_SERVICE = Credential("", "", arn=f"arn:aws:sts::{ACCOUNT_ID}:assumed-role/tidemill/pipelines", unrestricted=True)


class Perform(Protocol):
    """Performs an operation as if a client had sent it: validation, refusals, authorization, handler."""

    async def __call__(
        self, service: str, name: str, members: Mapping[str, Any], *, credential: Credential
    ) -> Mapping[str, Any]:
        """Return the members of the answer; raises what a client would receive, an `AwsError`."""
        ...


class StepRequests:
    """Sends the requests of executions.

    What creates something has the rights of the pipeline's role if the settings name the role, as on SageMaker, and
    otherwise those of the key that started the execution; so has what reads a file. The service looks at the jobs that
    an execution created, and stops them, with its own rights: a key that is deleted meanwhile must not leave them
    running.

    Args:
        perform: Performs operations.
    """

    def __init__(self, perform: Perform, credentials: CredentialLookup, roles: Roles) -> None:
        self._perform = perform
        self._credentials = credentials
        self._roles = roles

    async def send(
        self,
        execution: PipelineExecution | None,
        operation: str,
        members: Mapping[str, Any],
        *,
        service: str = "sagemaker",
    ) -> dict[str, Any]:
        """Return the answer to a request as values of JSON.

        Args:
            execution: Its execution, by whose rights it is sent; None for a request about a job that a step created.
            operation: Name of the operation in the model.
            members: Its members, as values of JSON.
            service: botocore's name of the service.

        Raises:
            AwsError: What a client would receive.
        """
        credential = _SERVICE if execution is None else self._credential(execution)
        answer = await self._perform(service, operation, members, credential=credential)
        return {name: _plain(value) for name, value in answer.items()}

    async def find(self, operation: str, members: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the answer to a Describe request, or None if what it names does not exist.

        Args:
            operation: Name of the operation in the model.
        """
        try:
            return await self.send(None, operation, members)
        except ServiceUnavailable:
            raise
        except AwsError:
            return None

    def _credential(self, execution: PipelineExecution) -> Credential:
        if self._roles.has(execution.role):
            return Credential(
                "",
                "",
                arn=f"arn:aws:sts::{ACCOUNT_ID}:assumed-role/{execution.role}/{execution.execution_id}",
                role=execution.role,
                scope=JobScope(name=execution.execution_id, kind=HolderKind.PIPELINE),
            )
        credential = self._credentials.lookup(execution.key_id)
        if credential is None:
            raise AwsError(
                f"the key {execution.starter} that started the execution {execution.arn} does not exist anymore, and"
                f" the settings name no policy of the role {execution.role!r}, which would give its steps rights; start"
                " it again with another key",
                code="AccessDeniedException",
                status=400,
            )
        return credential


def _plain(value: Any) -> Any:
    """Return a value of botocore's shapes as a value of JSON."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value
