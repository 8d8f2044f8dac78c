"""Methods that describe models: their metadata, and the states of their versions."""

from typing import Any

from tidemill_serving.errors import invalid
from tidemill_serving.grpc_api.lookup import fill_spec, lease, target
from tidemill_serving.messages.definitions import messages
from tidemill_serving.messages.schema import ENUMS
from tidemill_serving.registry import Registry

_SIGNATURES = "signature_def"


def get_model_metadata(request: Any, registry: Registry) -> Any:
    """Answer a GetModelMetadataRequest: the signatures of a version, in an Any of SignatureDefMap.

    Raises:
        RequestError: The version does not exist, or the request asks for a field other than the signatures.
    """
    target(request)
    if not request.metadata_field:
        raise invalid(f"GetModelMetadataRequest must specify at least one metadata_field; there is: {_SIGNATURES}")
    for field in request.metadata_field:
        if field != _SIGNATURES:
            raise invalid(f"Metadata field {field} is not supported; there is: {_SIGNATURES}")
    response = messages().GetModelMetadataResponse()
    servable = lease(request, registry)
    try:
        fill_spec(response.model_spec, servable, signature="")
        found = messages().SignatureDefMap()
        for key, definition in servable.model.signature_defs.items():
            found.signature_def[key].CopyFrom(definition)
    finally:
        servable.leases.leave()
    response.metadata[_SIGNATURES].Pack(found)
    return response


def get_model_status(request: Any, registry: Registry) -> Any:
    """Answer a GetModelStatusRequest: the state of the requested version, or of all versions, newest first.

    Raises:
        RequestError: The model or version does not exist.
    """
    name, version, label = target(request)
    response = messages().GetModelStatusResponse()
    for status in registry.versions(name, version, label=label):
        made = response.model_version_status.add(version=status.version, state=ENUMS["VersionState"][status.state])
        made.status.error_code = status.code.number
        made.status.error_message = status.message
    return response
