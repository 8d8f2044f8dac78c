"""The compatibility table and the SDK: every argument has a row, and so has every hyperparameter that an SDK sends."""

import ast
import importlib
import inspect
import re
from enum import Enum
from pathlib import Path
from typing import Any, Unpack, get_args, get_origin, is_typeddict

import pytest

from tidemill import sdk
from tidemill.compat.names import MODULES
from tidemill.core.compatibility.hyperparameters import HYPERPARAMETERS
from tidemill.core.compatibility.sdk import ARGUMENTS, DISTRIBUTIONS
from tidemill.sdk import serializers
from tidemill.sdk.arguments import DEPRECATED_ALIASES
from tidemill.sdk.distribution import KINDS
from tidemill.sdk.hosting import HostingOperations

REPOSITORY = Path(__file__).resolve().parents[4]
AWS_SDK = REPOSITORY / ".venvs/peers/lib/python3.11/site-packages/sagemaker"
RUNTIME = REPOSITORY / "packages/tidemill-runtime/src"

# Arguments that the estimator accepts through **earlier.
BY_KEYWORD = {"training_steps", "evaluation_steps", "checkpoint_path", "requirements_file"}

NAME = re.compile(r"""["'](sagemaker_[a-z_]+)["']""")
NO_HYPERPARAMETERS = {
    "sagemaker_remote_function_bootstrap": "a directory",
    "sagemaker_session": "an attribute",
    "sagemaker_model_server_workers": "a variable of a server, in capitals",
    "sagemaker_tensorflow_container": "a module",
}


_WHOLE = ("JSONDeserializer", "JSONLinesDeserializer", "CSVDeserializer", "StringDeserializer", "BytesDeserializer")
HIDDEN = {"Session": (HostingOperations,), **dict.fromkeys(_WHOLE, (serializers._WholeBodyDeserializer,))}
"""Classes without a name of their own in the documentation, whose methods are those of others."""

OTHER_ORDER = {
    "TensorFlow": "the first arguments of version 1; further ones are keywords",
    "Model": "the order of version 1",
    "Session": "the order of version 1; there is no feature store",
    "ModelPackage": "has no archive and no algorithm",
    "Predictor": "the order of version 1",
    "TensorFlowPredictor": "the order of version 1",
    "Predictor.update_endpoint": "there are no limits of instances",
    "JsonGet": "the first argument takes the step and its name",
    "ProcessingJob": "made by the SDK; other names",
    "Properties": "made by the SDK",
    "Rule": "made by Rule.sagemaker",
    "ProfilerConfig": "there is no profiler",
    "list_runs": "returns all runs, so there are no pages",
}
"""Callables that take other arguments by position than those of AWS's SDK v2, and why."""


def exported() -> dict[str, Any]:
    found = {name: getattr(sdk, name) for name in sdk.__all__}
    for names in MODULES.values():
        for target in names.values():
            module, _, attribute = target.partition(":")
            found[attribute] = getattr(importlib.import_module(module), attribute)
    return found


def signatures() -> dict[str, list[str]]:
    """Return every public callable of the SDK that has arguments, with their names."""
    found: dict[str, list[str]] = {}
    for name, thing in exported().items():
        if is_typeddict(thing):  # its members are arguments of other callables
            continue
        if inspect.isclass(thing) and not issubclass(thing, (Enum, Exception)):
            found[name] = parameters(thing)
            parts = (thing, *HIDDEN.get(name, ()))
            for method, member in [pair for each in parts for pair in vars(each).items()]:
                plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
                if inspect.isfunction(plain) and not method.startswith("_"):
                    found[f"{name}.{method}"] = parameters(getattr(thing, method))
        elif inspect.isfunction(thing):
            found[name] = parameters(thing)
    return {name: given for name, given in found.items() if given}


def parameters(function: Any) -> list[str]:
    found = [each for each in inspect.signature(function).parameters.values() if each.name != "self"]
    return [name for each in found for name in named(each)]


def named(parameter: inspect.Parameter) -> list[str]:
    """Return the name of a parameter; of options that are described once, their names."""
    if get_origin(parameter.annotation) is Unpack:
        return list(get_args(parameter.annotation)[0].__annotations__)
    prefix = {parameter.VAR_KEYWORD: "**", parameter.VAR_POSITIONAL: "*"}.get(parameter.kind, "")
    return [f"{prefix}{parameter.name}"]


@pytest.mark.parametrize("function", sorted({*signatures(), *ARGUMENTS}))
def test_every_argument_has_a_row_and_every_row_an_argument(function: str) -> None:
    beside = BY_KEYWORD if function == "TensorFlow" else set()
    assert set(ARGUMENTS.get(function, {})) - beside == set(signatures().get(function, []))


def orders_of_aws() -> dict[str, list[list[str]]]:
    """Return the arguments by position of the functions and methods of AWS's SDK, without the object itself."""
    found: dict[str, list[list[str]]] = {}
    folders = ("*.py", "workflow/*.py", "tensorflow/*.py", "sklearn/*.py", "debugger/*.py", "experiments/*.py")
    for node in [node for each in folders for file in AWS_SDK.glob(each) for node in ast.parse(file.read_text()).body]:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append([each.arg for each in node.args.args])
        for method in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(method, ast.FunctionDef):
                name = f"{node.name}.{method.name}".removesuffix(".__init__")
                is_static = any(getattr(each, "id", "") == "staticmethod" for each in method.decorator_list)
                found.setdefault(name, []).append([each.arg for each in method.args.args][not is_static :])
    return found


def order(function: str) -> list[str]:
    """Return the arguments that a public callable takes by position."""
    owner, _, method = function.partition(".")
    thing = exported()[owner]
    called = getattr(thing, method) if method else thing
    if taken := getattr(called.__init__ if inspect.isclass(called) else called, "order", None):
        return list(taken)
    given = inspect.signature(called).parameters.values()
    return [each.name for each in given if each.kind is each.POSITIONAL_OR_KEYWORD and each.name != "self"]


@pytest.mark.skipif(not AWS_SDK.exists(), reason="AWS's SDK v2 is not installed (.venvs/peers)")
def test_arguments_by_position_are_in_the_order_of_awss_sdk() -> None:
    theirs, names = orders_of_aws(), set(signatures())
    both = {name: (order(name), theirs[name]) for name in names & theirs.keys()}
    assert len(both) > 100
    others = {
        name: own
        for name, (own, given) in both.items()
        if not any(own[: len(each)] == each[: len(own)] for each in given)
    }
    assert set(others) == set(OTHER_ORDER), others


def test_every_kind_of_distribution_has_a_row() -> None:
    assert set(DISTRIBUTIONS) == set(KINDS)


def test_an_earlier_name_is_that_of_an_argument_with_a_row() -> None:
    assert set(DEPRECATED_ALIASES.values()) <= set(ARGUMENTS["TensorFlow"])


def named_in(directory: Path, *patterns: str) -> set[str]:
    files = [file for pattern in patterns for file in directory.glob(pattern)]
    assert files, f"nothing matches {patterns} below {directory}"
    return {name for file in files for name in NAME.findall(file.read_text())} - NO_HYPERPARAMETERS.keys()


def test_every_hyperparameter_that_our_sdk_and_runtime_know_has_a_row() -> None:
    ours = named_in(Path(sdk.__file__).parent, "request.py", "distribution.py", "compiler.py")
    runtime = named_in(RUNTIME, "tidemill_runtime/*.py", "tidemill_runtime/launchers/*.py")
    assert (ours | runtime) - HYPERPARAMETERS.keys() == set()


@pytest.mark.skipif(not AWS_SDK.exists(), reason="AWS's SDK v2 is not installed (.venvs/peers)")
def test_every_hyperparameter_that_awss_sdk_sends_with_a_tensorflow_job_has_a_row() -> None:
    sent = named_in(AWS_SDK, "estimator.py", "job.py", "model.py", "tensorflow/**/*.py", "training_compiler/*.py")
    assert sent > {"sagemaker_program", "sagemaker_mpi_enabled", "sagemaker_training_compiler_enabled"}
    assert sent - HYPERPARAMETERS.keys() == set()
