"""The Python in the documents parses, and its requests and arguments exist.

This code is not run here, since most of it needs a trained model. The test checks what becomes outdated first: imported
names, arguments of the SDK, and members of requests according to botocore's models.
"""

import ast
import importlib
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import xform_name
from botocore.validate import ParamValidator

from tidemill.core.compatibility.sdk import ARGUMENTS

REPOSITORY = Path(__file__).resolve().parents[4]
DOCUMENTS = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
SERVICES = ("sagemaker", "sagemaker-runtime", "logs", "cloudwatch", "s3")
BEGINS = ("import ", "from ", "@", "def ", "class ")
CLASSES = {"estimator": "TensorFlow", "transformer": "Transformer", "predictor": "TensorFlowPredictor"}


def operations() -> dict[str, Any]:
    """Return the input of each operation, by its name in boto3."""
    session = botocore.session.get_session()
    models = [session.get_service_model(service) for service in SERVICES]
    return {
        xform_name(name): model.operation_model(name).input_shape for model in models for name in model.operation_names
    }


OPERATIONS = operations()


def blocks(text: str) -> Iterator[str]:
    """Yield code blocks, fenced with the name of the language or indented, that look like Python."""
    lines: list[str] = []
    fence: str | None = None
    for line in [*text.splitlines(), ""]:
        if line.startswith("```"):
            if fence == "python":
                yield "\n".join(lines)
            fence = line[3:] if fence is None else None
            lines = []
        elif fence is not None or line.startswith("    ") or (not line and lines):
            lines.append(line)
        else:
            code = textwrap.dedent("\n".join(lines)).strip()
            if code.startswith(BEGINS) or "client(" in code or ".create_" in code:
                yield code
            lines = []


def snippets() -> list[Any]:
    return [
        pytest.param(code, id=f"{document.name}-{number}")
        for document in DOCUMENTS
        for number, code in enumerate(blocks(document.read_text()))
    ]


@pytest.mark.parametrize("code", snippets())
def test_code_in_a_document_names_what_exists(code: str) -> None:
    check(code)


@pytest.mark.parametrize(
    "code",
    [
        "from tidemill.sdk import Nothing",
        "TensorFlow(entry_points='train.py')",
        "estimator.deploy(1, wait_for=True) or estimator.fit(input='s3://b')",
        "client.create_endpoint_config(ProductionVariants=[{'VariantNam': 'v'}])",
        "client.stop_training_job(Name='job')",
    ],
)
def test_a_name_that_does_not_exist_is_found(code: str) -> None:
    with pytest.raises(AssertionError):
        check(code)


def check(code: str) -> None:
    for node in ast.walk(ast.parse(code.replace(", ...)", ")"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "tidemill":
            module = importlib.import_module(str(node.module))
            assert [name.name for name in node.names if not hasattr(module, name.name)] == []
        elif isinstance(node, ast.Call):
            check_call(node)


def check_call(call: ast.Call) -> None:
    keywords = {each.arg: each.value for each in call.keywords if each.arg is not None}
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if called in OPERATIONS and set(keywords) and all(name[0].isupper() for name in keywords):
        problems = [text for name, value in keywords.items() for text in faults(called, name, value)]
        assert problems == []
    receiver = getattr(getattr(call.func, "value", None), "id", None)
    function = called if isinstance(call.func, ast.Name) else f"{CLASSES.get(str(receiver))}.{called}"
    rows = ARGUMENTS.get(function, {})
    if rows and (function == "TensorFlow" or "**" not in "".join(rows)):
        assert set(keywords) <= set(rows), f"{function} has no argument {sorted(set(keywords) - set(rows))}"


def faults(operation: str, name: str, value: ast.expr) -> Iterator[str]:
    """Yield botocore's errors for one member of a request; values that are not literals are not checked."""
    shape = OPERATIONS[operation].members.get(name)
    if shape is None:
        yield f"{operation} has no member {name}"
        return
    try:
        given = ast.literal_eval(value)
    except ValueError:
        return
    report = ParamValidator().validate(given, shape)
    if report.has_errors():
        yield f"{operation}: {name}: {report.generate_report()}"


def test_documents_show_requests_and_the_sdk() -> None:
    code = "\n".join(parameter.values[0] for parameter in snippets())
    for shown in ("create_endpoint_config(", "create_transform_job(", "TensorFlow(", "AsyncInferenceConfig("):
        assert shown in code
