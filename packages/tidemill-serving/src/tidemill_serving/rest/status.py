"""Status and metadata of models, in TF Serving's JSON format."""

import json
from collections.abc import Sequence
from typing import Any

from tidemill_serving.registry import Registry, Servable, VersionStatus


def status(versions: Sequence[VersionStatus]) -> dict[str, Any]:
    """Return the status of versions, in the given order.

    Args:
        versions: Statuses of one model.

    Returns:
        ``{"model_version_status": [...]}``.
    """
    return {
        "model_version_status": [
            {
                "version": str(each.version),
                "state": each.state,
                "status": {"error_code": each.code.name, "error_message": each.message},
            }
            for each in versions
        ]
    }


def status_body(versions: Sequence[VersionStatus]) -> bytes:
    """Return `status` as a response body.

    Args:
        versions: Statuses of one model.

    Returns:
        Indented JSON.
    """
    return _pretty(status(versions))


def model_list_body(models: dict[str, list[VersionStatus]]) -> bytes:
    """Return all models with their status; TF Serving has no such route.

    Args:
        models: Statuses by model.

    Returns:
        Indented JSON.
    """
    return _pretty({"models": [{"name": name, **status(versions)} for name, versions in models.items()]})


def metadata_body(servable: Servable) -> bytes:
    """Return all signatures of a version, with every field, as a response body.

    Returns:
        Indented JSON, in the form of GetModelMetadataResponse.
    """
    # Part of TensorFlow's environment; imported here because nothing at start-up needs it.
    from google.protobuf.json_format import MessageToDict

    signatures = {
        key: MessageToDict(definition, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        for key, definition in sorted(servable.model.signature_defs.items())
    }
    document = {
        "model_spec": {
            "name": servable.version.name,
            "signature_name": "",
            "version": str(servable.version.version),
        },
        "metadata": {"signature_def": {"signature_def": signatures}},
    }
    return _pretty(document)


def scheduling_body(registry: Registry) -> bytes:
    """Return how the signatures of all loaded versions use the processors; TF Serving has no such route.

    Returns:
        Indented JSON.
    """
    versions = [servable for name in registry.names for servable in registry.loaded(name).values()]
    return _pretty(
        {
            "signatures": [
                {
                    "model": servable.version.name,
                    "version": str(servable.version.version),
                    "signature": key,
                    "runs_on": "the event loop" if runner.placement.on_loop else "threads",
                    **runner.schedule.document(),
                }
                for servable in versions
                for key, runner in sorted(servable.runners.items())
            ]
        }
    )


def _pretty(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=4, ensure_ascii=False) + "\n").encode()
