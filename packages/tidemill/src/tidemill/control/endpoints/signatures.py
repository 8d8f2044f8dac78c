"""Ask a variant's server which models it serves, and which inputs and outputs their signatures have.

The server answers from what it has loaded: no model runs, and no model is loaded, to learn about it.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote

from tidemill.control.endpoints.instances import Instances
from tidemill.control.invoker import Answer
from tidemill.control.target_models import model_name
from tidemill.core.hosting import Variant
from tidemill.core.instances import ObjectReference

__all__ = ["ModelSignature", "ServedModel", "ServedModels", "SignatureTensor"]

_MODELS = "/v1/models"
_NOT_FOUND = 404
_MODELS_MAX = 50
_ANSWER_MAX_BYTES = 8 * 1024 * 1024

_Get = Callable[[str], Awaitable[Answer]]
"""Sends a GET request to a server."""


@dataclass(frozen=True, slots=True)
class SignatureTensor:
    """An input or output of a signature.

    Attributes:
        name: Name in requests.
        type: TensorFlow's name of the data type without its prefix, in lower case, e.g. ``float`` or ``int64``.
        shape: Dimensions, -1 for a size that may vary; None if the number of dimensions may vary.
    """

    name: str
    type: str
    shape: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class ModelSignature:
    """A signature of a model.

    Attributes:
        method: ``predict``, ``classify`` or ``regress``; empty for one that requests cannot name.
    """

    name: str
    method: str
    inputs: tuple[SignatureTensor, ...]
    outputs: tuple[SignatureTensor, ...]


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model of a server.

    Attributes:
        versions: Numbers of its versions, with their states, e.g. ``AVAILABLE``.
        signatures: Those of the version that a request without a version gets.
    """

    name: str
    versions: Mapping[str, str]
    signatures: tuple[ModelSignature, ...]


class ServedModels:
    """Asks the servers of endpoints.

    Args:
        instances: Sends requests to servers.
        archive_of: Returns the archive of a target model.
    """

    def __init__(self, instances: Instances, archive_of: Callable[[Variant, str], ObjectReference]) -> None:
        self._instances = instances
        self._archive_of = archive_of

    async def of(self, variant: Variant, *, target: str = "") -> list[ServedModel]:
        """Return the models of a variant's first server that is ready, at most 50; none if no server is.

        Args:
            target: TargetModel of a multi-model variant: only this model, if the server has loaded it.

        Raises:
            DataMissing: The archive of the target model does not exist.
            Unreachable: The server does not answer.
            TimeoutError: It did not answer in time.
            ValueError: Its answer is not what TF Serving's API describes.
        """
        instance = next((each for each in variant.instances if each.ready), None)
        if instance is None:
            return []
        wanted = model_name(self._archive_of(variant, target)) if target and variant.is_multi_model else ""
        get: _Get = partial(self._instances.get, instance)
        listed = _document(await get(_MODELS))
        found = []
        for each in listed.get("models", ())[:_MODELS_MAX]:
            name = str(each["name"])
            if wanted in ("", name):
                versions = {str(one["version"]): str(one["state"]) for one in each["model_version_status"]}
                found.append(ServedModel(name, versions, await _signatures(get, name)))
        return found


async def _signatures(get: _Get, name: str) -> tuple[ModelSignature, ...]:
    answer = await get(f"{_MODELS}/{quote(name, safe='')}/metadata")
    if answer.status == _NOT_FOUND:  # no version is loaded
        return ()
    try:
        definitions = _document(answer)["metadata"]["signature_def"]["signature_def"]
        return tuple(
            ModelSignature(
                str(key),
                str(each.get("method_name", "")).rpartition("/")[2],
                _tensors(each.get("inputs", {})),
                _tensors(each.get("outputs", {})),
            )
            for key, each in definitions.items()
            if not key.startswith("__")  # TensorFlow's own, e.g. __saved_model_init_op
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the metadata of the model {name!r} has no signatures: {error!r}") from error


def _tensors(described: Mapping[str, Any]) -> tuple[SignatureTensor, ...]:
    return tuple(
        SignatureTensor(name, str(each["dtype"]).removeprefix("DT_").lower(), _shape(each.get("tensor_shape", {})))
        for name, each in sorted(described.items())
    )


def _shape(described: Mapping[str, Any]) -> tuple[int, ...] | None:
    if described.get("unknown_rank"):
        return None
    return tuple(int(each["size"]) for each in described.get("dim", ()))


def _document(answer: Answer) -> dict[str, Any]:
    if answer.status != 200 or len(answer.body) > _ANSWER_MAX_BYTES:
        raise ValueError(f"the server answered {answer.status} with {len(answer.body)} bytes")
    document = json.loads(answer.body)
    if not isinstance(document, dict):
        raise ValueError(f"the server's answer is a {type(document).__name__}, no object")
    return document
