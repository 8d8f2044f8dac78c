"""Steps of all gRPC methods: parse a request, and find the model and the signature that the request names."""

from collections.abc import Callable
from typing import Any

from tidemill_serving.engine import Array, Signature
from tidemill_serving.errors import RequestError, failed_precondition, invalid
from tidemill_serving.messages.definitions import messages
from tidemill_serving.registry import Registry, Servable

DEFAULT_SIGNATURE = "serving_default"
Run = Callable[[Signature, list[Array]], list[Array]]
"""Runs a signature on arrays in the order of its inputs. Raises RequestError."""


def parsed(name: str, data: bytes) -> Any:
    """Parse a message of one of the types in `messages`.

    Raises:
        RequestError: INVALID_ARGUMENT, because the bytes are not a message of this type.
    """
    try:
        return getattr(messages(), name).FromString(data)
    except Exception as error:  # the module of protobuf's DecodeError depends on its implementation
        raise invalid(f"the bytes are no {name}: {error}") from error


def target(message: Any) -> tuple[str, int | None, str | None]:
    """Return the model's name, version and version label of a request.

    Raises:
        RequestError: INVALID_ARGUMENT, because the request names no model.
    """
    if not message.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    spec = message.model_spec
    if not spec.name:
        raise invalid("ModelSpec has no name specified.")
    version = spec.version.value if spec.WhichOneof("version_choice") == "version" else None
    return spec.name, version, spec.version_label or None


def lease(message: Any, registry: Registry) -> Servable:
    """Return the model version that a request names. The version stays loaded until ``leases.leave`` is called.

    Raises:
        RequestError: The request names no model, or a name, version or label that is not served.
    """
    name, version, label = target(message)
    return registry.lease(name, version, label=label)


def find_signature(spec: Any, servable: Servable, *, missing: Callable[[str], RequestError]) -> Signature:
    """Return the signature that a ModelSpec names, or the default signature if it names none.

    Args:
        servable: The model version.
        missing: Creates the error for an unknown name; the list of known signatures is appended to its message.

    Raises:
        RequestError: The model has no such signature, or the signature cannot be served.
    """
    name = spec.signature_name or DEFAULT_SIGNATURE
    signature = servable.model.signatures.get(name)
    if signature is not None:
        return signature
    if name in servable.model.unusable:
        raise failed_precondition(f"{servable.model.unusable[name]} (signature {name})")
    known = ", ".join(f'"{key}"' for key in servable.model.signatures) or "none that can be served"
    error = missing(name)
    raise RequestError(error.code, f"{error.message} The model has: {known}")


def fill_spec(spec: Any, servable: Servable, *, signature: str) -> None:
    """Fill an answer's ModelSpec with the version and the signature that produced it.

    Args:
        spec: The ModelSpec to change.
        servable: The version that ran.
        signature: Key of the signature.
    """
    spec.name = servable.version.name
    spec.version.value = servable.version.version
    spec.signature_name = signature
