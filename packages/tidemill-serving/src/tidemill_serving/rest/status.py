"""Status and metadata of models, in the JSON that TF Serving makes of its messages."""

import json
from collections.abc import Sequence
from typing import Any

from tidemill_serving.registry import Servable

__all__ = ["metadata_body", "model_list_body", "status", "status_body"]


def status(servables: Sequence[Servable]) -> dict[str, Any]:
    """The status of versions, newest first. Every version that is listed is loaded and serves."""
    return {
        "model_version_status": [
            {
                "version": str(servable.version.version),
                "state": "AVAILABLE",
                "status": {"error_code": "OK", "error_message": ""},
            }
            for servable in servables
        ]
    }


def status_body(servables: Sequence[Servable]) -> bytes:
    """`status` as a reply body."""
    return _pretty(status(servables))


def model_list_body(models: dict[str, list[Servable]]) -> bytes:
    """All models with their status, an addition to TF Serving's routes."""
    return _pretty({"models": [{"name": name, **status(servables)} for name, servables in models.items()]})


def metadata_body(servable: Servable) -> bytes:
    """All signatures of a version, every field printed."""
    # Comes with TensorFlow; imported late because nothing at start-up needs it.
    from google.protobuf.json_format import MessageToDict  # pyrefly: ignore[missing-import]

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


def _pretty(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=4, ensure_ascii=False) + "\n").encode()
