"""Operations that the service performs itself, e.g. for a step of a pipeline, after the checks of a client's request.

Only what belongs to HTTP is left out: matching, the signature, the limits of bodies.
"""

import json
import uuid
from collections.abc import Mapping
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

from tidemill.errors import UnknownOperation
from tidemill.wire.exchange import Authorizer, Caller, Context, Reply, Service
from tidemill.wire.operations import json_reader, operation
from tidemill.wire.protocols.models import service_model
from tidemill.wire.protocols.parse_json import load_json
from tidemill.wire.signing.credentials import Credential


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
            members: Its members, as values of JSON. A number or Boolean where the model has a text becomes that text: a
                parameter of a pipeline has a type, whereas all hyperparameters are texts.
            credential: Whose rights it has.

        Raises:
            AwsError: What a client would receive.
        """
        handler = self._handlers.get(service, {}).get(name)
        if handler is None:
            raise UnknownOperation(f"This service does not implement the {service} operation {name!r}.")
        spec = operation(service, name, "json", refuses_encryption=self._refuses_encryption)
        sent = with_texts(members, service_model(service).operation_model(name).input_shape)
        found = json_reader(service, name)(load_json(json.dumps(sent).encode()), None, [])
        spec.check(found)
        context = Context(
            request_id=str(uuid.uuid4()),
            service=service,
            operation=name,
            caller=Caller(credential.access_key_id, credential.arn),
            region=self._region,
            headers={},
            kms_keys=spec.refuse(found),
            internal=True,
        )
        answer = await self._authorizer.handle(handler, found, context, credential)
        return answer.members if isinstance(answer, Reply) else answer


def with_texts(value: Any, shape: Shape | None) -> Any:
    """Return a value of JSON in which numbers and Booleans are texts where the model has texts.

    Args:
        shape: Its shape; None for what the model does not have.
    """
    if isinstance(shape, StructureShape) and isinstance(value, Mapping):
        return {name: with_texts(each, shape.members.get(name)) for name, each in value.items()}
    if isinstance(shape, MapShape) and isinstance(value, Mapping):
        return {name: with_texts(each, shape.value) for name, each in value.items()}
    if isinstance(shape, ListShape) and isinstance(value, list):
        return [with_texts(each, shape.member) for each in value]
    if shape is not None and shape.type_name == "string" and isinstance(value, bool | int | float):
        return json.dumps(value)
    return value
