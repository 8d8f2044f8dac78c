"""What several contract tests share."""

from collections.abc import Iterator
from typing import Any

import boto3
import botocore.validate
import pytest

from tidemill.testing import Service


@pytest.fixture
def replies(tidemill_service: Service) -> Iterator[tuple[boto3.Session, list[str]]]:
    """Yield a session that validates every parsed reply by the output shape of its operation, and the violations."""
    session = tidemill_service.boto3_session()
    faults: list[str] = []
    validator = botocore.validate.ParamValidator()

    def check(parsed: dict[str, Any], model: Any, http_response: Any, **_: Any) -> None:
        if http_response.status_code >= 300 or model.output_shape is None or model.has_streaming_output:
            return
        if model.name == "GetRole":  # boto3 has already parsed the policy from text into a dictionary
            return
        shown = {key: value for key, value in parsed.items() if key != "ResponseMetadata"}
        report = validator.validate(shown, model.output_shape)
        if report.has_errors():
            faults.append(f"{model.name}: {report.generate_report()}")

    session.events.register("after-call", check)
    yield session, faults
    assert faults == []
