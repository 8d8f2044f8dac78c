"""Each argument of the public functions has a row in the table; parameters of smp.init are used, or listed as idle."""

import inspect
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import ranks
import saving
import smdistributed.modelparallel.tensorflow as smp
from argument_effects import ArgumentEffect
from argument_table import ARGUMENTS
from smdistributed.modelparallel.backend.exceptions import SMPConfigurationError
from smdistributed.modelparallel.tensorflow import api, core, utils
from smdistributed.modelparallel.tensorflow.config import IDLE_PARAMETERS, Config

PACKAGE = Path(inspect.getfile(api)).parent
PAGE = (Path(__file__).parents[3] / "docs/model-parallel.md").read_text()
CLASSES = (smp.CheckpointManager, smp.DistributedModel, smp.StepOutput)


def public_functions() -> dict[str, Callable[..., Any]]:
    functions = {name: getattr(smp, name) for name in api.__all__ if inspect.isfunction(getattr(smp, name))}
    functions |= {f"utils.{name}": getattr(utils, name) for name in utils.__all__}
    functions |= {name: getattr(core, name) for name in core.__all__ if inspect.isfunction(getattr(core, name))}
    for one in CLASSES:
        if "__init__" in vars(one):
            functions[one.__name__] = one.__init__
        functions |= {
            f"{one.__name__}.{name}": getattr(one, name)
            for name, value in vars(one).items()
            if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, classmethod))
        }
    return functions


def arguments_of(function: Callable[..., Any]) -> list[str]:
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    parameters = inspect.signature(function).parameters.values()
    return [marks.get(one.kind, "") + one.name for one in parameters if one.name != "self"]


@pytest.mark.parametrize("name", public_functions())
def test_every_argument_of_a_function_has_a_row(name: str) -> None:
    assert arguments_of(public_functions()[name]) == list(ARGUMENTS.get(name, {}))


def test_every_row_describes_an_argument_of_a_public_function() -> None:
    assert set(ARGUMENTS) <= set(public_functions())
    assert all(row.note for arguments in ARGUMENTS.values() for row in arguments.values())


def test_no_argument_is_collected_and_dropped() -> None:
    assert not [
        name for name, function in public_functions().items() for one in arguments_of(function) if one.strip("*_") == ""
    ]


@pytest.mark.parametrize("name", [field.name for field in fields(Config) if field.name != "extras"])
def test_every_parameter_is_read_by_the_library_or_listed_as_idle(name: str) -> None:
    sources = [path.read_text() for path in PACKAGE.rglob("*.py") if path.name != "config.py"]
    is_read = any(re.search(rf"\b(config|parameters|known)\.{name}\b", source) for source in sources)
    assert is_read != (name in IDLE_PARAMETERS)
    assert f"`{name}`" in PAGE


IDLE = {
    "memory_weight": 0.5,
    "ddp_port": 1234,
    "ddp_dist_backend": "nccl",
    "xla": True,
    "fork": True,
    "deterministic_server": True,
}


def test_the_first_rank_names_parameters_without_effect_and_those_that_do_not_exist() -> None:
    assert set(IDLE) == set(IDLE_PARAMETERS)
    config = {"partitions": 2, "ddp": True, **IDLE, "microbatch": 4, "trace_device": "cpu"}
    with ranks.Job(2, config) as job:
        job.call("builtins:len", "")
        texts = job.output()
    for name in IDLE:
        assert texts.count(f"smp: '{name}' has no effect: ") == 1, texts
    unknown = "is not a parameter of this library and has no effect"
    assert texts.count(f"'microbatch' {unknown}; did you mean 'microbatches'?") == 1
    assert texts.count(f"'trace_device' {unknown}\n") == 1


# --- what is refused --------------------------------------------------------------------------------------------------

REFUSED: dict[tuple[str, str], tuple[str, str, dict[str, Any]]] = {
    # function, argument: the method, the words, the arguments
    ("DistributedModel.compile", "jit_compile"): ("compile", "jit_compile=True", {"jit_compile": True}),
    ("DistributedModel.export", "format"): ("export", "format is 'onnx'", {"filepath": "x", "format": "onnx"}),
    ("DistributedModel.export", "input_signature"): (
        "export", "input_signature=[1]", {"filepath": "x", "input_signature": [1]},
    ),
    ("DistributedModel.export", "**options"): ("export", "opset=3", {"filepath": "x", "opset": 3}),
    ("DistributedModel.save_weights", "max_shard_size"): (
        "save_weights", "max_shard_size=1", {"filepath": "x.weights.h5", "max_shard_size": 1},
    ),
    ("DistributedModel.save", "**options"): ("save", "signatures=1", {"filepath": "x", "signatures": 1}),
    ("DistributedModel.save", "**options, h5"): ("save", "save_format='h5'", {"filepath": "x", "save_format": "h5"}),
}  # fmt: skip


def test_a_refusal_names_the_argument() -> None:
    rows = {(name, one) for name, row in ARGUMENTS.items() for one in row if row[one].effect is ArgumentEffect.REFUSED}
    assert rows <= set(REFUSED)
    for texts in ranks.run(2, saving.refuse_all, [case[::2] for case in REFUSED.values()]):
        for (_, words, _), (kind, text) in zip(REFUSED.values(), texts, strict=True):
            assert kind == "SMPUsageError" and words in text, (kind, text)


def test_a_file_that_exists_is_kept_where_overwrite_is_false(tmp_path: Path) -> None:
    for replaced, kept, texts in ranks.run(2, saving.save_again, str(tmp_path)):
        assert replaced == ["model.keras", "model.weights.h5", "saved"]
        assert kept == replaced
        assert len(texts) == 4 and all("exists, and overwrite is False" in words for words in texts), texts


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"partitions": 0}, "'partitions' is 0; allowed is an int >= 1"),
        ({"partitions": 2, "microbatches": 0}, "'microbatches' is 0; allowed is an int >= 1"),
        ({"partitions": 2, "optimize": "time"}, "'optimize' is 'time'; allowed is one of 'memory', 'speed'"),
    ],
)
def test_a_plan_checks_its_parameters_as_init_does(given: dict[str, Any], words: str) -> None:
    with pytest.raises(SMPConfigurationError, match=re.escape(words)):
        smp.plan(None, **given)
