"""Splitting batches into microbatches: every kind of argument, and every error."""

import collections
import dataclasses
import inspect
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from smdistributed.modelparallel.backend.exceptions import SMPSplitError
from smdistributed.modelparallel.tensorflow.stepping.leaves import Sliced, Split, Static, Whole
from smdistributed.modelparallel.tensorflow.stepping.split import SplitArguments, split_arguments

pytestmark = pytest.mark.smp_first


def step(x: Any = None, y: Any = None, *rest: Any, flag: Any = None) -> None:
    """The signature in most tests."""


def cut(
    *args: Any, B: int = 2, function: Any = step, options: dict[str, Any] | None = None, **kwargs: Any
) -> SplitArguments:
    return split_arguments(inspect.signature(function), args, kwargs, num_microbatches=B, **(options or {}))


def numbers(value: Any) -> Any:
    if isinstance(value, tf.SparseTensor):
        return tf.sparse.to_dense(value).numpy().tolist()
    if isinstance(value, tf.RaggedTensor):
        return value.to_list()
    return value.numpy().tolist()


def test_tensors_arrays_and_variables_are_split_on_axis_0() -> None:
    rows = np.arange(8).reshape(4, 2)
    for batch in (tf.constant(rows), rows, tf.Variable(rows), keras.Variable(rows, dtype="int64")):
        [leaf] = cut(batch).leaves
        assert isinstance(leaf, Split)
        assert leaf.spec == tf.TensorSpec((2, 2), tf.int64)
        assert [numbers(piece) for piece in leaf.pieces] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


def test_the_structure_of_the_call_is_kept() -> None:
    class Point(NamedTuple):
        a: Any
        b: Any

    class Batch(dict):  # type: ignore[type-arg]
        pass

    x = tf.range(4)
    given = ([x, (x, None)], Point(x, "name"), Batch(k=x), collections.OrderedDict(z=x, a=7))
    split = cut(*given, flag=collections.defaultdict(list, q=[x]), B=4)
    args, kwargs = split.rebuild(split.values(3))
    lists, point, batch, ordered = args
    assert isinstance(lists, list)
    assert isinstance(lists[1], tuple)
    assert lists[1][1] is None
    assert (type(point), point.b) == (Point, "name")
    assert type(batch) is Batch
    assert list(ordered) == ["z", "a"]
    assert ordered["a"] == 7
    assert kwargs["flag"].default_factory is list
    for piece in (lists[0], lists[1][0], point.a, batch["k"], ordered["z"], kwargs["flag"]["q"][0]):
        assert numbers(piece) == [3]
    assert batch["k"] is not given[2]["k"]
    assert given[2]["k"] is x


def test_tensors_in_a_set_are_references_and_are_split() -> None:
    x, y = tf.range(4), tf.range(4.0)
    split = cut({x.ref(), y.ref(), "name"})
    assert [type(leaf) for leaf in split.leaves] == [Static, Split, Split]
    (first,), _ = split.rebuild(split.values(0))
    assert sorted(str(numbers(item.deref())) for item in first if not isinstance(item, str)) == ["[0, 1]", "[0.0, 1.0]"]
    assert "name" in [item for item in first if isinstance(item, str)]


def test_the_order_of_the_leaves_of_a_set_does_not_depend_on_hashes() -> None:
    x, y = tf.range(4), tf.range(4.0)
    orders = {
        tuple(str(leaf.key()) for leaf in cut(s).leaves)
        for s in ({x.ref(), y.ref(), "a", 1}, {1, y.ref(), x.ref(), "a"})
    }
    assert len(orders) == 1


def test_python_values_strings_and_objects_are_passed_unchanged() -> None:
    @dataclasses.dataclass
    class Options:
        rate: float
        image: Any

    options = Options(0.1, tf.range(4))
    for value in (1, 2.5, True, None, "a", b"b", options, keras.layers.Dense(1), len, np.str_("s")):
        [leaf] = cut(value).leaves
        assert isinstance(leaf, Static)
        assert leaf.value(1) is value


def test_a_numpy_number_is_passed_whole_as_a_tensor() -> None:
    [leaf] = cut(np.float32(2)).leaves
    assert isinstance(leaf, Whole)
    assert leaf.spec == tf.TensorSpec((), tf.float32)


def test_non_split_inputs_are_passed_whole_in_any_position() -> None:
    split = cut(
        tf.range(4), {"a": tf.constant(True), "b": 3}, flag=np.arange(3), options={"non_split_inputs": ["y", "flag"]}
    )
    assert [type(leaf) for leaf in split.leaves] == [Split, Whole, Static, Whole]
    _, whole = split.rebuild(split.values(1))
    assert numbers(whole["flag"]) == [0, 1, 2]
    assert isinstance(cut(tf.constant(1), options={"non_split_inputs": "x"}).leaves[0], Whole)


def test_extra_positional_arguments_have_the_name_of_the_star_parameter() -> None:
    split = cut(None, None, tf.constant(1), tf.constant(2), options={"non_split_inputs": ["rest"]})
    assert [type(leaf) for leaf in split.leaves[2:]] == [Whole, Whole]


def test_an_argument_is_split_on_its_own_axis() -> None:
    x = tf.reshape(tf.range(12), (2, 6))
    for axis in (1, -1):
        split = cut(x, tf.range(6), B=3, options={"input_split_axes": {"x": axis}})
        assert split.leaves[0].key() == ("split", tf.TensorSpec((2, 2), tf.int32))
        assert numbers(split.values(1)[0]) == [[2, 3], [8, 9]]


@pytest.mark.parametrize("in_graph", [False, True])
def test_ragged_tensors_are_split(in_graph: bool) -> None:
    ragged = tf.ragged.constant([[1], [2, 3], [], [4, 5, 6]])
    [leaf] = cut(ragged).leaves
    assert isinstance(leaf.spec, tf.RaggedTensorSpec)

    def pieces(batch: Any) -> Any:
        return [cut(batch).values(mb)[0] for mb in range(2)]

    if in_graph:
        pieces = tf.function(pieces, input_signature=[tf.RaggedTensorSpec((None, None), tf.int32)])
    assert [numbers(piece) for piece in pieces(ragged)] == [[[1], [2, 3]], [[], [4, 5, 6]]]


@pytest.mark.parametrize("batch_size", [4, None])
@pytest.mark.parametrize("axis", [0, 1])
def test_sparse_tensors_are_split_on_any_axis(axis: int, batch_size: int | None) -> None:
    dense = np.diag([1.0, 2, 3, 4])

    @tf.function(input_signature=[tf.SparseTensorSpec((batch_size, batch_size), tf.float64)])
    def pieces(batch: Any) -> Any:
        split = cut(batch, options={"input_split_axes": {"x": axis}})
        assert split.leaves[0].spec.shape[axis] == (2 if batch_size else None)
        return [split.values(mb)[0] for mb in range(2)]

    found = [numbers(piece) for piece in pieces(tf.sparse.from_dense(dense))]
    assert found == [half.tolist() for half in np.split(dense, 2, axis=axis)]


class Lines:
    """An object that splits itself into pieces of its own class."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def smp_slice(self, num_mb: int, mb: int, axis: int) -> "Lines":
        assert axis == 0
        return Lines(self.lines[mb::num_mb])


class Pair:
    """An object whose pieces are nests of tensors."""

    def __init__(self, *, odd: bool = False) -> None:
        self.odd = odd

    def smp_slice(self, num_mb: int, mb: int, axis: int) -> Any:
        piece = tf.fill((2, axis), mb)
        return {"piece": piece, "of": num_mb, "number": mb if self.odd else 0}


def test_an_object_may_slice_itself_into_pieces_of_any_type() -> None:
    split = cut({"in": [Lines(["a", "b", "c"])]})
    [leaf] = split.leaves
    assert isinstance(leaf, Sliced)
    assert not split.is_uniform
    (piece,), _ = split.rebuild(split.values(1))
    assert piece["in"][0].lines == ["b"]
    (first,), _ = split.rebuild(["placeholder"])
    assert first == {"in": ["placeholder"]}


def test_pieces_that_differ_only_in_the_values_of_tensors_need_one_trace() -> None:
    split = cut(tf.range(2), Pair(), options={"input_split_axes": {"y": 5}})
    assert split.is_uniform
    assert [type(leaf) for leaf in split.leaves] == [Split, Split, Static, Static]
    (_, pair), _ = split.rebuild(split.values(1))
    assert numbers(pair["piece"]) == [[1] * 5] * 2
    assert pair["of"] == 2
    assert not cut(Pair(odd=True)).is_uniform


def test_a_container_with_its_own_slicing_is_a_leaf() -> None:
    class Own(dict):  # type: ignore[type-arg]
        def smp_slice(self, num_mb: int, mb: int, axis: int) -> str:
            return f"{mb}/{num_mb}"

    assert cut(Own(a=tf.range(3))).values(1) == ["1/2"]


@pytest.mark.parametrize("B", [1, 2, 4])
def test_an_unknown_batch_size_is_split_when_the_graph_runs(B: int) -> None:
    @tf.function(input_signature=[tf.TensorSpec((None, 3)), tf.TensorSpec(None, tf.int64)])
    def run(x: Any, y: Any) -> Any:
        split = cut(x, y, B=B)
        assert split.leaves[0].spec == tf.TensorSpec((None, 3))
        assert split.leaves[1].spec == tf.TensorSpec(None, tf.int64)
        return [split.rebuild(split.values(mb))[0] for mb in range(B)]

    x, y = tf.random.normal((8, 3)), tf.range(8, dtype=tf.int64)
    pieces = run(x, y)
    assert tf.concat([a for a, _ in pieces], 0).numpy().tolist() == x.numpy().tolist()
    assert tf.concat([b for _, b in pieces], 0).numpy().tolist() == y.numpy().tolist()


TOO_SMALL = (
    r"argument x cannot be cut on axis 0 into 4 microbatches of equal size: .*drop_remainder=True.*Received size:"
)


def test_an_indivisible_batch_is_refused_by_name_when_the_graph_is_built() -> None:
    with pytest.raises(SMPSplitError, match=TOO_SMALL + " 6"):
        cut(tf.range(6), B=4)


def test_an_indivisible_batch_is_refused_with_the_same_text_when_the_graph_runs() -> None:
    @tf.function(input_signature=[tf.TensorSpec((None,))])
    def run(x: Any) -> Any:
        return cut(x, B=4).values(0)

    run(tf.range(8.0))
    with pytest.raises(tf.errors.InvalidArgumentError, match=TOO_SMALL + r"\] \[6\]"):
        run(tf.range(6.0))


def test_batches_of_different_sizes_are_refused_by_name() -> None:
    with pytest.raises(SMPSplitError, match=r"x, y\[0\] have different batch sizes.*x: 4, y\[0\]: 8"):
        cut(tf.range(4), [tf.range(8)])

    @tf.function(input_signature=[tf.TensorSpec((None,)), tf.TensorSpec((None,))])
    def run(x: Any, y: Any) -> Any:
        return cut(x, y, B=1).values(0)

    run(tf.range(8.0), tf.range(8.0))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"x, y have different batch sizes"):
        run(tf.range(8.0), tf.range(4.0))


def test_a_scalar_tensor_is_refused_and_the_error_names_non_split_inputs() -> None:
    with pytest.raises(SMPSplitError, match=r"'flag' is a scalar tensor.*name 'flag' in non_split_inputs"):
        cut(tf.range(4), flag=tf.constant(True))


@pytest.mark.parametrize(
    "options", [{"non_split_inputs": ["x", "z"]}, {"input_split_axes": {"z": 1}}, {"non_split_inputs": "z"}]
)
def test_a_name_that_is_no_parameter_is_refused_with_the_list_of_parameters(options: dict[str, Any]) -> None:
    with pytest.raises(SMPSplitError, match=r"names 'z'.*parameters are: x, y, rest, flag"):
        cut(tf.range(4), options=options)


def test_any_name_is_allowed_if_the_step_function_accepts_any_keyword() -> None:
    def loose(x: Any, **others: Any) -> None: ...

    split = cut(tf.range(2), z=tf.constant(1), function=loose, options={"non_split_inputs": ["z"]})
    assert isinstance(split.leaves[1], Whole)


def test_other_mistakes_are_refused() -> None:
    with pytest.raises(SMPSplitError, match="'x': named in non_split_inputs and in input_split_axes"):
        cut(tf.range(4), options={"non_split_inputs": ["x"], "input_split_axes": {"x": 0}})
    with pytest.raises(SMPSplitError, match="rank 1, so it has no axis 2"):
        cut(tf.range(4), options={"input_split_axes": {"x": 2}})
    with pytest.raises(SMPSplitError, match="ragged tensor, which can be cut on axis 0 only"):
        cut(tf.ragged.constant([[1], [2]]), options={"input_split_axes": {"x": 1}})
    with pytest.raises(SMPSplitError, match=r"IndexedSlices, which cannot be cut into microbatches.*smp_slice"):
        cut(tf.IndexedSlices(tf.ones((2, 1)), tf.range(2), tf.constant([4, 1])))
    with pytest.raises(TypeError, match="unexpected keyword"):
        cut(tf.range(4), nothing=1)


def test_arrays_and_numbers_are_converted_to_the_input_signature() -> None:
    signature = {"input_signature": [tf.TensorSpec((4, 2), tf.float32), {"y": tf.TensorSpec((None,), tf.int32)}]}
    split = cut(np.ones((4, 2)), {"y": [1, 2, 3, 4]}, options=signature | {"non_split_inputs": None})
    assert [leaf.spec for leaf in split.leaves[:1]] == [tf.TensorSpec((2, 2), tf.float32)]
    with pytest.raises(SMPSplitError, match="'x' does not fit its input_signature"):
        cut(np.ones((4, 2)), options={"input_signature": [tf.TensorSpec((4, 3), tf.int32)]})


def test_equal_calls_have_equal_keys_and_different_ones_do_not() -> None:
    def key(*args: Any, B: int = 2, **kwargs: Any) -> Any:
        return cut(*args, B=B, **kwargs).piece_key()

    @tf.function(input_signature=[tf.TensorSpec((None,)), tf.TensorSpec((None,))])
    def keys_of_symbolic(x: Any, y: Any) -> Any:
        assert key(x) == key(y)
        return x

    keys_of_symbolic(tf.range(4.0), tf.range(4.0))
    model, x = keras.layers.Dense(1), tf.range(4)
    unlike = [
        key(x),
        key(x, B=4),
        key(tf.range(8)),
        key(tf.range(4.0)),
        key([x]),
        key((x,)),
        key({"a": x}),
        key({"b": x}),
        key(None, x),
        key(y=x),
        key(x, 1),
        key(x, True),
        key(x, 1.0),
        key(x, model),
        key(x, [None]),
        key(x, {1, 2}),
        key(x, float("nan")),
    ]
    assert len(set(unlike)) == len(unlike)
    assert key(x, model) == key(tf.range(4, 8), model)
    assert key(x, float("nan")) == key(x, float("nan"))
    unhashable = bytearray(b"ab")
    assert key(x, unhashable) == key(x, unhashable)
    assert key(x, unhashable) != key(x, bytearray(b"ab"))
