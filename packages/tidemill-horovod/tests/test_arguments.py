"""Every argument of every public function has a row in the table, and has the effect that the row states."""

import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from argument_effects import ArgumentEffect
from argument_table import ARGUMENTS
from groups import joined
from horovod.tensorflow._shared.ranks.environment import read_secret

FUNCTIONS = {name: getattr(hvd, name) for name in hvd.__all__ if inspect.isfunction(getattr(hvd, name))}


def rows(effect: ArgumentEffect) -> list[tuple[str, str]]:
    return [
        (function, name)
        for function, arguments in ARGUMENTS.items()
        for name, row in arguments.items()
        if row.effect is effect
    ]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_argument_of_a_function_has_a_row(function: str) -> None:
    signature = inspect.signature(FUNCTIONS[function])
    assert sorted(signature.parameters) == sorted(ARGUMENTS.get(function, {}))


def test_every_row_describes_an_argument_of_a_public_function() -> None:
    assert set(ARGUMENTS) <= set(FUNCTIONS)
    assert all(row.note for arguments in ARGUMENTS.values() for row in arguments.values())


# --- calls ------------------------------------------------------------------------------------------------------------


def called(function: str, **given: Any) -> Any:
    """Return the function's result for its minimal arguments and the given ones."""
    return CALLS[function](**given)


def stepped(**given: Any) -> Any:
    variable = tf.keras.Variable([1.0])
    optimizer = hvd.DistributedOptimizer(**{"optimizer": tf.keras.optimizers.SGD(0.5), **given})
    optimizer.apply_gradients([(tf.constant([3.0]), variable)])
    return tf.convert_to_tensor(variable.value)


def gradients(tape: Any = hvd.DistributedGradientTape, **given: Any) -> Any:
    weight, table = tf.Variable([1.0, 2.0]), tf.Variable(tf.ones([3, 2]))
    given = {"gradtape": tf.GradientTape(persistent=True), **given}
    with given["gradtape"]:
        loss = tf.reduce_sum(tf.gather(table, [1]) * weight)
    return tape(**given).gradient(loss, [weight, table])


def assigned(**given: Any) -> list[np.ndarray]:
    given = {"variables": [tf.Variable(1.0)], "root_rank": 0, **given}
    assert hvd.broadcast_variables(**given) is None
    return [variable.numpy() for variable in given["variables"]]


CALLS: dict[str, Callable[..., Any]] = {
    "DistributedGradientTape": gradients,
    "allgather": lambda **given: hvd.allgather(**{"tensor": tf.constant([2.0]), **given}),
    "allgather_object": lambda **given: hvd.allgather_object(**{"obj": "mine", **given}),
    "allreduce": lambda **given: hvd.allreduce(**{"tensor": tf.constant([2.0, 4.0]), **given}),
    "barrier": lambda **given: hvd.barrier(**given),
    "broadcast": lambda **given: hvd.broadcast(**{"tensor": tf.constant([2.0]), "root_rank": 0, **given}),
    "broadcast_object": lambda **given: hvd.broadcast_object(**{"obj": "mine", **given}),
    "broadcast_object_fn": lambda **given: hvd.broadcast_object_fn(**given)("mine"),
    "broadcast_variables": assigned,
    "gpu_available": lambda **given: hvd.gpu_available(**given),
    "grouped_allreduce": lambda **given: hvd.grouped_allreduce(**{"tensors": [tf.constant([2.0, 4.0])], **given}),
    "init": lambda **given: hvd.init(**given),
    "DistributedOptimizer": stepped,
    "PartialDistributedGradientTape": lambda **given: gradients(hvd.PartialDistributedGradientTape, **given),
    "grouped_allgather": lambda **given: hvd.grouped_allgather(**{"tensors": [tf.constant([2.0])], **given}),
    "grouped_reducescatter": lambda **given: hvd.grouped_reducescatter(**{"tensors": [tf.constant([2.0])], **given}),
    "reducescatter": lambda **given: hvd.reducescatter(**{"tensor": tf.constant([2.0]), **given}),
}


@pytest.mark.parametrize("function", [name for name in CALLS if "process_set" in ARGUMENTS[name]])
def test_a_value_that_is_not_a_process_set_is_refused_before_anything_is_sent(function: str) -> None:
    with joined() as pair:
        with pytest.raises(ValueError, match=r"process_set is 1; allowed is a hvd\.ProcessSet"):
            called(function, process_set=1)
        assert not pair.sent


WITHOUT_EFFECT = {
    "device_dense": "/cpu:0",
    "device_sparse": "/cpu:0",
    "name": "label",
    "inplace": True,
    "session": object(),
    "verbose": True,
    "num_groups": 2,
    "groups": [[0]],
    "ignore_name_scope": True,
    "use_locking": True,
    "scale_local_gradients": False,
}


def numbers(value: Any) -> list[Any]:
    return [leaf.numpy() if isinstance(leaf, tf.Tensor) else leaf for leaf in tf.nest.flatten(value, True)]


@pytest.mark.parametrize(("function", "argument"), [row for row in rows(ArgumentEffect.NONE) if row[0] in CALLS])
def test_an_argument_without_effect_changes_neither_the_result_nor_what_is_sent(function: str, argument: str) -> None:
    seen = []
    for given in ({}, {argument: WITHOUT_EFFECT[argument]}):
        with joined() as pair:
            seen.append((numbers(called(function, **given)), pair.sent))
    np.testing.assert_equal(seen[1], seen[0])


# --- effects ----------------------------------------------------------------------------------------------------------
# For each honored argument, a check of its effect. The sum of the pair is 0, so reductions are seen in what is sent.


def sent_by(function: str, **given: Any) -> list[np.ndarray]:
    with joined() as pair:
        called(function, **given)
        return pair.sent


def result_of(function: str, **given: Any) -> Any:
    with joined():
        return numbers(called(function, **given))


def object_of(function: str, **given: Any) -> Any:
    with joined():
        return called(function, **given)


def op_names(function: str, name: str) -> list[str]:
    with joined():
        traced = tf.function(lambda: called(function, name=name)).get_concrete_function()
        return [op.name for op in traced.graph.get_operations()]


def slices() -> tf.IndexedSlices:
    return tf.IndexedSlices(tf.constant([[2.0, 4.0]]), tf.constant([1]), tf.constant([3, 2]))


def reduction_effects(function: str, tensor: str, wrapped: Callable[[Any], Any]) -> dict[tuple[str, str], Callable]:
    def result(**given: Any) -> Any:
        return result_of(function, **given)[0]  # the values, of tf.IndexedSlices

    def shows_tensor() -> None:
        assert [list(array) for array in sent_by(function, **{tensor: wrapped(tf.constant([7.0]))})] == [[7.0]]
        assert not sent_by(function, **{tensor: wrapped(None)})

    def shows_average() -> None:
        given = {tensor: wrapped(slices())}
        for falsy in (False, 0):
            assert result(average=falsy, **given)[-1].tolist() == [2.0, 4.0]
        for truthy in (True, 1):
            assert result(average=truthy, **given)[-1].tolist() == [1.0, 2.0]

    def shows_op() -> None:
        assert list(result(op=hvd.Max)) == [2.0, 4.0]
        assert list(result(op=hvd.Min)) == [-2.0, -4.0]
        assert list(result(op=hvd.Product)) == [-4.0, -16.0]

    def shows_compression() -> None:
        for given in ({}, {tensor: wrapped(slices())}):
            first, *_ = sent_by(function, compression=hvd.Compression.fp16, **given)
            assert first.dtype == np.float16
        with joined(), pytest.raises(ValueError, match="compression is 'fp16'; allowed"):
            called(function, compression="fp16")

    def shows_prescale() -> None:
        assert sent_by(function, prescale_factor=0.5)[0].tolist() == [1.0, 2.0]
        assert sent_by(function, prescale_factor=0.5, **{tensor: wrapped(tf.constant([6, 2]))})[0].tolist() == [3, 1]

    def shows_postscale() -> None:
        assert list(result(postscale_factor=0.5, op=hvd.Max)) == [1.0, 2.0]

    shown = {
        tensor: shows_tensor,
        "average": shows_average,
        "op": shows_op,
        "compression": shows_compression,
        "prescale_factor": shows_prescale,
        "postscale_factor": shows_postscale,
    }
    return {(function, argument): effect for argument, effect in shown.items()}


def shows_tape() -> None:
    with joined() as pair:
        other = tf.GradientTape(persistent=True)
        weight = tf.Variable([3.0])
        with other:
            loss = tf.reduce_sum(weight * 5.0)
        hvd.DistributedGradientTape(other).gradient(loss, [weight])
        assert [list(array) for array in pair.sent] == [[5.0]]


def shows_compression_of_a_tape() -> None:
    assert {array.dtype for array in sent_by("DistributedGradientTape", compression=hvd.Compression.fp16)} == {
        np.dtype("float16"),
        np.dtype("int32"),
    }


def shows_sparse_as_dense() -> None:
    with joined():
        assert isinstance(gradients()[1], tf.IndexedSlices)
        assert isinstance(gradients(sparse_as_dense=True)[1], tf.Tensor)
    hvd.init([])  # this process alone
    assert isinstance(gradients(sparse_as_dense=True)[1], tf.Tensor)
    hvd.shutdown()


def shows_op_of_a_tape() -> None:
    with joined():
        mean, total = (gradients(op=op)[1].values.numpy()[-1] for op in (hvd.Average, hvd.Sum))
    assert (total == 2 * mean).all()
    with pytest.raises(ValueError, match=r"op is <ReduceOp.MIN: 'min'>; allowed is hvd.Average, hvd.Sum or hvd.Adasum"):
        gradients(op=hvd.Min)


def shows_predivide() -> None:
    plain, divided = (sent_by("DistributedGradientTape", gradient_predivide_factor=f) for f in (1.0, 4.0))
    dense = [max(arrays, key=lambda array: array.dtype.kind == "f" and array.ndim == 1) for arrays in (plain, divided)]
    assert (dense[0] == 4.0 * dense[1]).all()
    for given in ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, {"gradient_predivide_factor": 0.0}):
        with pytest.raises(ValueError, match="gradient_predivide_factor is"):
            gradients(**given)


def shows_comm() -> None:
    with joined() as pair:
        assert hvd.process.communicator() is pair
        hvd.init()  # accepts the existing group
        hvd.init(pair)
        with pytest.raises(ValueError, match=r"Horovod was initialized before with .*call hvd\.shutdown\(\) first"):
            hvd.init([0])


def equals(got: Any, wanted: Any) -> Callable[[], None]:
    def compare() -> None:
        np.testing.assert_equal(got(), wanted)

    return compare


def named(function: str) -> Callable[[], None]:
    def shows_name() -> None:
        assert any(name.startswith("label") for name in op_names(function, "label"))

    return shows_name


EFFECTS: dict[tuple[str, str], Callable[[], None]] = {
    **reduction_effects("allreduce", "tensor", lambda tensor: tensor),
    **reduction_effects("grouped_allreduce", "tensors", lambda tensor: [tensor]),
    **{(function, "name"): named(function) for function in ("allreduce", "allgather", "broadcast")},
    ("allgather", "tensor"): equals(lambda: result_of("allgather", tensor=tf.constant([7.0]))[0], [-7.0, 7.0]),
    ("allgather_object", "obj"): equals(lambda: object_of("allgather_object", obj={"a": 1}), [{"a": 1}] * 2),
    ("broadcast", "tensor"): equals(lambda: result_of("broadcast", tensor=tf.constant([7.0]))[0], [-7.0]),
    ("broadcast", "root_rank"): equals(lambda: result_of("broadcast", root_rank=1)[0], [2.0]),
    ("broadcast_object", "obj"): equals(lambda: object_of("broadcast_object", obj=["x"], root_rank=1), ["x"]),
    ("broadcast_object", "root_rank"): equals(lambda: object_of("broadcast_object", root_rank=0), "theirs"),
    ("gpu_available", "ext_base_name"): equals(lambda: hvd.gpu_available("mxnet"), False),
    ("broadcast_variables", "variables"): equals(
        lambda: result_of("broadcast_variables", variables=[tf.Variable(7.0), tf.Variable(8.0)]), [-7.0, -8.0]
    ),
    ("broadcast_variables", "root_rank"): equals(lambda: result_of("broadcast_variables", root_rank=1), [1.0]),
    ("DistributedGradientTape", "gradtape"): shows_tape,
    ("DistributedGradientTape", "compression"): shows_compression_of_a_tape,
    ("DistributedGradientTape", "sparse_as_dense"): shows_sparse_as_dense,
    ("DistributedGradientTape", "op"): shows_op_of_a_tape,
    ("DistributedGradientTape", "gradient_predivide_factor"): shows_predivide,
    ("init", "comm"): shows_comm,
}


@pytest.mark.parametrize(("function", "argument"), [row for row in rows(ArgumentEffect.HONORED) if row in EFFECTS])
def test_an_honored_argument_has_an_effect(function: str, argument: str) -> None:
    EFFECTS[function, argument]()


def test_encryption_without_its_package_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"SMP_RANK": "0", "SMP_SIZE": "2", "SMP_ENCRYPTION": "1", "SMP_SECRET": "5e" * 32}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert read_secret(required=False) == bytes.fromhex("5e" * 32)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(
        RuntimeError, match=r"hvd\.init\(\): SMP_ENCRYPTION is 1: .* cryptography, which is not installed"
    ):
        hvd.init()
