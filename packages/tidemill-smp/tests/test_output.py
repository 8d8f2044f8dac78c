"""StepOutput: each method on each kind of value, eagerly, in graphs and under XLA."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import smdistributed.modelparallel.tensorflow as smp
from smdistributed.modelparallel.backend.exceptions import SMPUsageError

pytestmark = pytest.mark.smp_first

METHODS = ["reduce_mean", "reduce_sum", "concat", "stack", "merge", "accumulate"]
EAGER, GRAPH = (lambda f: f), tf.function
modes = pytest.mark.parametrize("mode", [EAGER, GRAPH], ids=["eager", "graph"])


def pieces_of(count: int, *shape: int, dtype: Any = tf.float32, seed: int = 1) -> list[tf.Tensor]:
    random = np.random.default_rng(seed)
    return [tf.constant(random.normal(size=shape) * 100, dtype) for _ in range(count)]


@modes
@pytest.mark.parametrize("count", [1, 2, 3, 8, 11])
def test_means_and_sums_equal_the_plain_loop_to_the_last_bit(mode: Callable[..., Any], count: int) -> None:
    pieces = pieces_of(count, 50)
    total = pieces[0].numpy()
    for piece in pieces[1:]:
        total = total + piece.numpy()
    mean = total * np.float32(1 / count)
    variable = tf.Variable(tf.zeros(50))

    @mode
    def combine(*values: Any) -> Any:
        output = smp.StepOutput(values)
        means = [output.reduce_mean(), output.accumulate(var=variable)]
        means += [output.accumulate(method) for method in ("variable", "add_n", "accumulate_n")]
        return output.reduce_sum(), means

    got, means = combine(*pieces)
    assert got.numpy().tobytes() == total.tobytes()
    assert {value.numpy().tobytes() for value in means} == {mean.tobytes()}
    assert variable.numpy().tobytes() == mean.tobytes()
    combine(*pieces)
    assert variable.numpy().tobytes() == mean.tobytes()


def test_means_are_close_to_the_plain_loop_under_xla() -> None:
    pieces = pieces_of(4, 50)
    compiled = tf.function(lambda *values: smp.StepOutput(values).accumulate(), jit_compile=True)
    np.testing.assert_allclose(compiled(*pieces), tf.reduce_mean(tf.stack(pieces), 0), rtol=1e-6)


def test_a_sum_frees_each_value_as_it_comes() -> None:
    # In the optimized graph, no op reads more than two of the values. A chain of `+` fails this.
    pieces = list(map(tf.constant, range(8)))

    @tf.function
    def mean(*seeds: Any) -> Any:
        return smp.StepOutput([tf.random.stateless_uniform((64, 64), (1, seed)) for seed in seeds]).accumulate()

    context.context().enable_graph_collection()
    try:
        mean(*pieces)
        metadata = context.context().export_run_metadata()
    finally:
        context.context().disable_graph_collection()
    nodes = [node for graphs in metadata.function_graphs for node in graphs.post_optimization_graph.node]
    made = {node.name for node in nodes if node.op == "StatelessRandomUniformV2"}
    assert len(made) == len(pieces)
    held = [sum(name in made for name in node.input) for node in nodes]
    assert sum(held) == len(pieces)
    assert max(held) == 2


@modes
def test_values_are_concatenated_or_stacked(mode: Callable[..., Any]) -> None:
    pieces = [tf.constant([[1, 2]]), tf.constant([[3, 4]])]

    @mode
    def combine(*values: Any) -> Any:
        output = smp.StepOutput(values)
        return output.concat(), output.merge(), output.stack()

    concat, merge, stack = combine(*pieces)
    assert concat.numpy().tolist() == merge.numpy().tolist() == [[1, 2], [3, 4]]
    assert stack.numpy().tolist() == [[[1, 2]], [[3, 4]]]
    words = smp.StepOutput([tf.constant(["a"]), tf.constant(["b", "c"])])
    assert words.merge().numpy().tolist() == [b"a", b"b", b"c"]


@modes
def test_scalars_are_stacked_into_a_vector(mode: Callable[..., Any]) -> None:
    signature: Any = [tf.TensorSpec(None), tf.TensorSpec(None)]

    def combine(a: Any, b: Any) -> Any:
        output = smp.StepOutput([a, b])
        return output.concat(), output.merge(), output.stack()

    known = mode(combine)
    unknown = tf.function(combine, input_signature=signature)
    for combined in (known, unknown):
        assert [value.numpy().tolist() for value in combined(tf.constant(1.0), tf.constant(2.0))] == [[1.0, 2.0]] * 3
    assert unknown(tf.constant([1.0]), tf.constant([2.0, 3.0])[:1])[0].numpy().tolist() == [1.0, 2.0]


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.uint8])
def test_the_mean_of_integers_is_that_of_reduce_mean(dtype: tf.DType) -> None:
    pieces = [tf.constant([1, 7], dtype), tf.constant([2, 7], dtype), tf.constant([2, 9], dtype)]
    expected = tf.reduce_mean(tf.stack(pieces), 0)
    output, variable = smp.StepOutput(pieces), tf.Variable(tf.zeros(2, dtype))
    for mean in (output.reduce_mean(), output.accumulate(), output.accumulate(var=variable), variable.read_value()):
        assert mean.dtype == dtype
        assert mean.numpy().tolist() == expected.numpy().tolist()


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float64, tf.complex64])
def test_the_dtype_stays(dtype: tf.DType) -> None:
    output = smp.StepOutput(pieces_of(4, 3, dtype=dtype))
    assert output.reduce_mean().dtype == output.accumulate().dtype == output.reduce_sum().dtype == dtype


def test_none_passes_through_every_method() -> None:
    output = smp.StepOutput([None, None])
    variable = tf.Variable(5.0)
    assert [getattr(output, method)() for method in METHODS] == [None] * 6
    assert output.accumulate(var=variable) is None
    assert variable.numpy() == 5
    assert output.outputs == [None, None]


def test_a_value_that_is_missing_in_some_microbatches_is_refused() -> None:
    with pytest.raises(SMPUsageError, match=r"None in microbatches \[1\] of 2"):
        smp.StepOutput([tf.constant(1.0), None]).reduce_mean()
    with pytest.raises(SMPUsageError, match="at least one microbatch"):
        smp.StepOutput([])


def sparse_gradients() -> list[tf.IndexedSlices]:
    shape = tf.constant([5, 2])
    return [
        tf.IndexedSlices(tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([0, 3]), shape),
        tf.IndexedSlices(tf.constant([[5.0, 6.0]]), tf.constant([3]), shape),
    ]


@modes
def test_sparse_gradients_stay_sparse_and_become_dense_only_in_a_variable(mode: Callable[..., Any]) -> None:
    variables = [tf.Variable(tf.ones((5, 2))), keras.Variable(np.ones((5, 2)), dtype="float32")]
    expected = np.array([[0.5, 1], [0, 0], [0, 0], [4, 5], [0, 0]])

    @mode
    def combine(first: Any, second: Any) -> Any:
        output = smp.StepOutput([first, second])
        sparse = [output.reduce_mean()] + [output.accumulate(m) for m in ("variable", "add_n", "accumulate_n")]
        assert all(isinstance(value, tf.IndexedSlices) for value in [*sparse, output.reduce_sum()])
        return sparse, [output.accumulate(var=variable) for variable in variables], output.reduce_sum()

    sparse, dense, total = combine(*sparse_gradients())
    for value in sparse:
        assert value.indices.numpy().tolist() == [0, 3, 3]
        assert tf.convert_to_tensor(value).numpy().tolist() == expected.tolist()
    for value in [*dense, *variables]:
        assert tf.convert_to_tensor(value).numpy().tolist() == expected.tolist()
    assert tf.convert_to_tensor(total).numpy().tolist() == (expected * 2).tolist()


def test_a_sparse_mean_updates_a_variable_as_the_dense_one() -> None:
    table = tf.Variable(tf.ones((5, 2)))
    optimizer = keras.optimizers.SGD(1.0)
    optimizer.apply_gradients([(smp.StepOutput(sparse_gradients()).accumulate(), table)])
    assert table.numpy()[3].tolist() == [-3, -4]


@modes
def test_ragged_and_sparse_tensors_are_concatenated(mode: Callable[..., Any]) -> None:
    ragged = [tf.ragged.constant([[1], [2, 3]]), tf.ragged.constant([[4, 5, 6]])]
    sparse = [tf.sparse.from_dense([[1.0, 0.0]]), tf.sparse.from_dense([[0.0, 2.0]])]

    @mode
    def combine(ragged: Any, sparse: Any) -> Any:
        rags, spas = smp.StepOutput(ragged), smp.StepOutput(sparse)
        return rags.merge(), rags.stack(), spas.concat(), spas.stack(), spas.reduce_mean(), spas.reduce_sum()

    merged, stacked, concat, stack, mean, total = combine(ragged, sparse)
    assert merged.to_list() == [[1], [2, 3], [4, 5, 6]]
    assert stacked.to_list() == [[[1], [2, 3]], [[4, 5, 6]]]
    assert tf.sparse.to_dense(concat).numpy().tolist() == [[1, 0], [0, 2]]
    assert tf.sparse.to_dense(stack).numpy().tolist() == [[[1, 0]], [[0, 2]]]
    assert tf.sparse.to_dense(mean).numpy().tolist() == [[0.5, 1]]
    assert tf.sparse.to_dense(total).numpy().tolist() == [[1, 2]]


def test_an_unknown_method_is_refused_with_the_list_of_methods() -> None:
    with pytest.raises(ValueError, match=r"'variable', 'add_n', 'accumulate_n'\. Received: 'sum'"):
        smp.StepOutput([tf.constant(1.0)]).accumulate("sum")
    with pytest.raises(SMPUsageError, match=r"var must be a tf\.Variable"):
        smp.StepOutput([tf.constant(1.0)]).accumulate(var=3)
    # As documented, only the method "variable" uses var.
    assert smp.StepOutput([tf.constant(1.0)]).accumulate("add_n", 3).numpy() == 1


def test_functions_accept_and_return_step_outputs() -> None:
    traces = []

    @tf.function
    def run(x: Any) -> Any:
        return {"sum": smp.StepOutput([x, x + 1]), "none": smp.StepOutput([None, None])}

    @tf.function
    def back(output: smp.StepOutput) -> Any:
        traces.append(1)
        return output.reduce_mean()

    @tf.function
    def sparse() -> Any:
        return smp.StepOutput(sparse_gradients())

    outputs = run(tf.constant([1.0, 2.0]))
    assert outputs["sum"].stack().numpy().tolist() == [[1, 2], [2, 3]]
    assert outputs["none"].outputs == [None, None]
    for start in (1.0, 5.0):
        assert back(run(tf.constant([start]))["sum"]).numpy().tolist() == [start + 0.5]
    assert len(traces) == 1
    assert isinstance(sparse().reduce_mean(), tf.IndexedSlices)


def test_nested_structures_keep_a_step_output_as_one_leaf() -> None:
    grads = {"a": [smp.StepOutput([tf.constant(1.0), tf.constant(3.0)])]}
    assert tf.nest.map_structure(lambda grad: grad.accumulate().numpy(), grads) == {"a": [2.0]}


def test_repr_and_errors_name_the_methods_to_call() -> None:
    output = smp.StepOutput([tf.zeros((2, 3))] * 2)
    text = repr(output)
    for part in ("2 microbatches", "float32[2, 3]", ".outputs", *(f".{method}()" for method in METHODS)):
        assert part in text
    assert "another rank" in repr(smp.StepOutput([None]))
    repr(smp.StepOutput(sparse_gradients()))
    with pytest.raises(TypeError, match=r"call \.accumulate\(\) on a gradient"):
        tf.convert_to_tensor(output)
    with pytest.raises(TypeError, match=r"call \.accumulate\(\) on a gradient"):
        tf.reduce_mean(output)
    with pytest.raises(TypeError, match=r"take \.outputs"):
        list(output)
