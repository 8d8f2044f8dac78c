"""Sparse gradients have the same rows after a step as TensorFlow's gradient of the whole batch."""

import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ranks
import smdistributed.modelparallel.tensorflow as smp
from smdistributed.modelparallel.tensorflow.legacy_keras.gradients import symbolic_gradients
from smdistributed.modelparallel.tensorflow.shared_rows import (
    ALL_ROWS,
    join_replicas,
    mark_shared_rows,
    num_shared_rows,
)

pytestmark = pytest.mark.smp_first

CONFIG = {"partitions": 1, "microbatches": 4, "bind_cores": False}
BATCH, LENGTH, ROWS = 8, 4, 9


def rows_of(slices: tf.IndexedSlices) -> list[tuple[int, list[float]]]:
    """Return index and values of each row, sorted."""
    pairs = zip(slices.indices.numpy().tolist(), slices.values.numpy().tolist(), strict=True)
    return sorted((index, [round(value, 5) for value in values]) for index, values in pairs)


@pytest.mark.parametrize(("sizes", "way"), [("known", "tape"), ("unknown", "tape"), ("known", "graph")])
def test_rows_equal_those_of_the_whole_batch(sizes: str, way: str) -> None:
    (results,) = ranks.run(1, differentiate_all, sizes, way, config=CONFIG)
    assert set(results) == set(FORMS)
    for form, (rows, plain_rows, total, plain_total) in results.items():
        assert rows == plain_rows, f"{form}, with sizes that are {sizes}, by a {way}"
        assert total == pytest.approx(plain_total), form


def test_a_step_is_traced_for_a_larger_batch_only_if_it_has_fixed_lookups() -> None:
    (counts,) = ranks.run(1, count_traces, config=CONFIG)
    assert counts == {"ids": [2], "positions": [2, 8], "positions of unknown sizes": [None]}


def test_a_step_that_rejects_a_larger_batch_uses_shapes_and_warns() -> None:
    ((rows, plain_rows, messages),) = ranks.run(1, fail_on_other_sizes, config=CONFIG)
    assert rows == plain_rows
    (message,) = messages
    assert "the step was also traced for a larger batch" in message
    assert "make the body of the step accept batches of any size" in message


def test_microbatches_that_are_traced_separately_share_equal_computations() -> None:
    ((alike, apart),) = ranks.run(1, slice_by_objects, config=CONFIG)
    assert alike == list(range(LENGTH)), "positions"
    assert apart == [0, 1, 2, 3], "one of each microbatch"


def test_knowledge_about_rows_survives_functions_that_return_outputs_of_a_step() -> None:
    pieces = [tf.IndexedSlices(tf.ones([3, 2]) * n, tf.constant([1, 2, n]), tf.constant([5, 2])) for n in (3, 4)]
    for rows in (2, tf.constant(2)):
        output = tf.function(lambda rows=rows: smp.StepOutput(pieces, shared_rows=rows))()
        for total in (output.reduce_sum(), tf.function(lambda output: output.reduce_sum())(output)):
            assert rows_of(total) == [(1, [7.0] * 2), (2, [7.0] * 2), (3, [3.0] * 2), (4, [4.0] * 2)]
    whole = smp.StepOutput([pieces[0]] * 2, shared_rows=ALL_ROWS)
    assert rows_of(whole.accumulate()) == rows_of(pieces[0])
    dense = whole.accumulate(var=tf.Variable(tf.zeros([5, 2])))
    assert dense.numpy().tolist() == tf.convert_to_tensor(pieces[0]).numpy().tolist()


def test_scaling_and_clipping_keep_the_information_about_rows() -> None:
    slices = mark_shared_rows(tf.IndexedSlices(tf.ones([3, 2]), tf.range(3), tf.constant([5, 2])), 2)
    (clipped,), _ = tf.clip_by_global_norm([slices], 0.1)
    halved = tf.IndexedSlices(slices.values / 2, slices.indices, slices.dense_shape)
    assert [num_shared_rows(one) for one in (slices, clipped, halved)] == [2, 2, 2]


@pytest.mark.parametrize("mode", [lambda f: f, tf.function], ids=["eager", "graph"])
def test_replicas_add_shared_rows_up_to_the_longest_input(mode: Any) -> None:
    def joined(indices: list[list[int]], rows: list[int]) -> Any:
        values = [tf.constant(np.ones([len(part), 2], "float32") * 10**n) for n, part in enumerate(indices)]
        slices = mode(join_replicas)(values, list(map(tf.constant, indices)), list(map(tf.constant, rows)), None)
        return [(index, row[0]) for index, row in rows_of(slices)]

    assert joined([[0, 1, 5], [0, 1, 5]], [2, 2]) == [(0, 11.0), (1, 11.0), (5, 1.0), (5, 10.0)]
    assert joined([[0, 1, 7], [0, 1, 2, 7]], [2, 3]) == [(0, 11.0), (1, 11.0), (2, 10.0), (7, 1.0), (7, 10.0)]
    assert joined([[0, 0], [0, 0]], [2, 2]) == [(0, 11.0), (0, 11.0)], "rows of one lookup stay apart"
    assert joined([[0, 1], [2, 3]], [2, 2]) == [(0, 1.0), (1, 1.0), (2, 10.0), (3, 10.0)], "they share nothing"


def test_rows_that_replicas_cannot_share_cause_a_warning() -> None:
    config = {**CONFIG, "microbatches": 1, "horovod": True}
    for averaged, in_step in ranks.run(2, return_gradients_from_functions, config=config):
        assert len(averaged) == 1
        assert "Call accumulate() and apply_gradients (or hvd.allreduce) in one function" in averaged[0]
        assert len(in_step) == 1
        assert "Reduce outside the step: hvd.allreduce(gradient.accumulate())" in in_step[0]


# --- on the ranks -----------------------------------------------------------------------------------------------------


def forms(table: Any) -> dict[str, Any]:
    """Kinds of lookups: each takes tokens (rows, LENGTH), tokens by time, and positions that are not split."""
    places, kept = np.arange(LENGTH), tf.Variable(range(LENGTH), trainable=False)
    length = lambda x: tf.shape(x)[1]  # noqa: E731
    rows = lambda x: tf.shape(x)[0]  # noqa: E731
    look = lambda indices: tf.gather(table, indices)  # noqa: E731
    return {
        "tokens": lambda x, by_time, whole: look(x),
        "one row": lambda x, by_time, whole: look(3),
        "an array": lambda x, by_time, whole: look(places),
        "a variable": lambda x, by_time, whole: look(kept),
        "an input that is not cut": lambda x, by_time, whole: look(whole),
        "positions": lambda x, by_time, whole: look(tf.range(length(x))),
        "positions in a row": lambda x, by_time, whole: look(tf.range(length(x))[tf.newaxis]),
        "positions by time": lambda x, by_time, whole: look(tf.range(rows(by_time)))[tf.newaxis],
        "positions twice": lambda x, by_time, whole: look(tf.range(length(x))) + look(tf.range(length(x))),
        "positions that repeat": lambda x, by_time, whole: look(tf.range(length(x)) // 2),
        "positions by a function": lambda x, by_time, whole: look(_positions(length(x))),
        "positions by a condition": lambda x, by_time, whole: look(_positions_by_condition(length(x))),
        "positions and tokens": lambda x, by_time, whole: look(tf.range(length(x))) + look(x),
        "tokens and positions": lambda x, by_time, whole: look(x) + look(tf.range(length(x))),
        "all kinds": lambda x, by_time, whole: look(x) + look(whole) + look(x + 1) + look(tf.zeros_like(x)) + look(1),
        "rows of rows": lambda x, by_time, whole: tf.gather(look(tf.range(length(x))), x % 2),
        "zeros": lambda x, by_time, whole: look(tf.zeros_like(x)),
        "zeros by sizes": lambda x, by_time, whole: look(tf.zeros([rows(x), length(x)], tf.int32)),
        "zeros for each row": lambda x, by_time, whole: look(tf.zeros([rows(x), 1], tf.int32)),
        "positions for each row": lambda x, by_time, whole: look(
            tf.tile(tf.range(length(x))[tf.newaxis], [rows(x), 1])
        ),
        "positions for each row, by a mask": lambda x, by_time, whole: look(
            tf.cumsum(tf.ones_like(x), 1, exclusive=True)
        ),
    }


@tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
def _positions(length: Any) -> Any:
    return tf.range(length) + 1


def _positions_by_condition(length: Any) -> Any:
    return tf.cond(length > 2, lambda: tf.range(length), lambda: tf.range(length) + 1)


FORMS = tuple(forms(None))


def _fresh() -> Any:
    from checkpoints import forget_the_step_before

    forget_the_step_before()
    random = np.random.RandomState(4)
    tokens = random.randint(0, 5, (BATCH, LENGTH)).astype("int32")
    tokens[:4] = tokens[0]  # batches may have equal rows
    table = tf.Variable(random.randn(ROWS, 2).astype("float32"))
    targets = random.randn(BATCH, LENGTH, 2).astype("float32")
    return table, tf.constant(tokens), tf.constant(targets)


def _gradient(table: Any, look: Any, x: Any, by_time: Any, whole: Any, targets: Any, *, way: str = "tape") -> Any:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(look(x, by_time, whole) - targets))
    return tape.gradient(loss, table) if way == "tape" else symbolic_gradients(loss, [table], caller="this test")[0]


def differentiate_all(sizes: str, way: str) -> dict[str, Any]:
    """Return per form the rows of the step's gradient and of TensorFlow's for the whole batch, and dense sums."""
    results = {}
    for name in FORMS:
        table, tokens, targets = _fresh()
        look = forms(table)[name]
        body = functools.partial(_gradient, table, look, way=way)
        step = smp.step(non_split_inputs=["whole"], input_split_axes={"by_time": 1})(body)
        given = tokens, tf.transpose(tokens), tf.constant(range(LENGTH)), targets
        specs = [tf.TensorSpec(one.shape if sizes == "known" else [None] * one.shape.rank, one.dtype) for one in given]
        outputs = tf.function(lambda *args, step=step: step(*args), input_signature=specs)(*given)
        mine, total = outputs.accumulate(), outputs.reduce_sum()
        plain = _gradient(table, look, *given)
        summed = [float(tf.reduce_sum(tf.square(tf.convert_to_tensor(one)))) for one in (total, plain)]
        results[name] = rows_of(mine), rows_of(plain), summed[0], summed[1] * CONFIG["microbatches"] ** 2
    return results


def count_traces() -> dict[str, list[Any]]:
    """Return the batch sizes for which each body was traced."""
    counts: dict[str, list[Any]] = {}
    looks = {"ids": lambda x: x, "positions": lambda x: tf.range(LENGTH), "positions of unknown sizes": None}
    for name, indices in looks.items():
        table, tokens, targets = _fresh()
        counts[name] = []

        @smp.step
        def step(x: Any, targets: Any, table: Any = table, name: str = name, indices: Any = indices) -> Any:
            counts[name].append(x.shape[0])
            with tf.GradientTape() as tape:
                rows = tf.gather(table, tf.range(LENGTH) if indices is None else indices(x))
                loss = tf.reduce_mean(tf.square(rows - targets))
            return tape.gradient(loss, table)

        specs = [tf.TensorSpec([None, *one.shape[1:]], one.dtype) for one in (tokens, targets)]
        signature = specs if indices is None else None
        tf.function(lambda *args, step=step: step(*args), input_signature=signature)(tokens, targets)
    return counts


def _noted() -> tuple[Any, list[str]]:
    import logging

    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("smdistributed.modelparallel").addHandler(handler)
    return handler, messages


def fail_on_other_sizes() -> Any:
    """Run a body that accepts two rows only, and looks up positions and as many zeros."""
    table, tokens, targets = _fresh()
    handler, messages = _noted()

    def look(x: Any, *_: Any) -> Any:
        return tf.gather(table, tf.range(LENGTH)) + tf.gather(table, tf.zeros_like(x))

    @smp.step
    def step(x: Any, targets: Any) -> Any:
        if x.shape[0] != 2:
            raise ValueError("this model takes two rows")
        return _gradient(table, look, x, None, None, targets)

    mine = step(tokens, targets).accumulate()
    handler.close()
    return rows_of(mine), rows_of(_gradient(table, look, tokens, None, None, targets)), messages


class Numbered:
    """Object that gives each microbatch its number, so that each microbatch is traced separately."""

    def __init__(self, number: int | None = None) -> None:
        self.number = number

    def smp_slice(self, num_mb: int, mb: int, axis: int) -> "Numbered":
        return Numbered(mb)


def slice_by_objects() -> Any:
    """Return the indices of positions, and of rows that each microbatch looks up by its number."""
    table, tokens, targets = _fresh()
    apart = tf.Variable(tf.zeros([ROWS, 2]))

    @smp.step
    def step(x: Any, number: Any, targets: Any) -> Any:
        with tf.GradientTape() as tape:
            looked_up = tf.gather(table, tf.range(LENGTH)) + tf.gather(apart, [number.number])
            loss = tf.reduce_mean(tf.square(looked_up - targets))
        return tape.gradient(loss, [table, apart])

    return [sorted(grad.accumulate().indices.numpy().tolist()) for grad in step(tokens, Numbered(), targets)]


def return_gradients_from_functions() -> tuple[list[str], list[str]]:
    """Return the warnings for a gradient averaged outside of its function, and for one reduced in the step."""
    import horovod.tensorflow as hvd
    import sessions

    handler, messages = _noted()
    _, tokens, targets = _fresh()
    keras = tf.keras

    class Net(smp.DistributedModel):
        def __init__(self) -> None:
            super().__init__()
            self.places = keras.layers.Embedding(LENGTH, 2)

        def call(self, x: Any) -> Any:
            return self.places(tf.range(tf.shape(x)[1])) + tf.cast(x, tf.float32)[:, :, tf.newaxis]

    with sessions.configured(ddp=True, horovod=False):
        net, optimizer = Net(), keras.optimizers.SGD(0.1)

        @smp.step
        def step(x: Any, targets: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(net(x) - targets))
            return tape.gradient(loss, net.trainable_variables)

        means = tf.function(lambda *args: [grad.accumulate() for grad in step(*args)])
        for _ in range(2):
            optimizer.apply_gradients(zip(means(tokens, targets), net.trainable_variables, strict=True))
    averaged = list(messages)
    messages.clear()

    @smp.step
    def reducing(x: Any, targets: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(net(x) - targets))
        return [hvd.allreduce(grad) for grad in tape.gradient(loss, net.trainable_variables)]

    reducing(tokens, targets)
    handler.close()
    return averaged, messages
