"""Operations that the service performs itself, e.g. for a step of a pipeline, after the checks of a client's request.

Only what belongs to HTTP is left out: matching, the signature, the limits of bodies.
"""

import json
import uuid
from collections.abc import Mapping
from typing import Any

from tidemill.errors import UnknownOperation
from tidemill.wire.exchange import Authorizer, Caller, Context, Reply, Service
from tidemill.wire.operations import json_reader, operation
from tidemill.wire.protocols.parse_json import load_json
from tidemill.wire.signing.credentials import Credential
from tidemill.wire.validation.validate import refuse_invalid

__all__ = ["Performer"]


class Performer:
    """Performs operations of services.

    Args:
        services: Services by botocore's name.
        authorizer: Decides whether a credential may do it.
        region: The service's region, passed to handlers.
        refuses_encryption: As for the gateway.
    """

    def __init__(
        self, services: Mapping[str, Service], authorizer: Authorizer, *, region: str, refuses_encryption: bool
    ) -> None:
        self._handlers = {name: service.handlers for name, service in services.items()}
        self._authorizer = authorizer
        self._region = region
        self._refuses_encryption = refuses_encryption

    async def __call__(
        self, service: str, name: str, members: Mapping[str, Any], *, credential: Credential
    ) -> Mapping[str, Any]:
        """Perform one operation.

        Args:
            service: botocore's name of the service.
            name: Name of the operation in the model.
            members: Its members, as values of JSON.
            credential: Whose rights it has.

        Returns:
            The members of the answer.

        Raises:
            AwsError: What a client would receive.
        """
        handler = self._handlers.get(service, {}).get(name)
        if handler is None:
            raise UnknownOperation(f"This service does not implement the {service} operation {name!r}.")
        spec = operation(service, name, "json", refuses_encryption=self._refuses_encryption)
        found = json_reader(service, name)(load_json(json.dumps(members).encode()), None, [])
        refuse_invalid(spec.check, found, code=spec.code)
        spec.refuse(found)
        context = Context(
            request_id=str(uuid.uuid4()),
            service=service,
            operation=name,
            caller=Caller(credential.access_key_id, credential.arn),
            region=self._region,
            headers={},
        )
        answer = await self._authorizer.handle(handler, found, context, credential)
        return answer.members if isinstance(answer, Reply) else answer
