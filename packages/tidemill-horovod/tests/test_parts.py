"""Parts that need no other rank: sums of several calls, compression, sets of ranks, keys of arguments."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from groups import joined
from horovod.tensorflow import process_sets
from horovod.tensorflow.aggregation import Aggregation
from horovod.tensorflow.collectives import scaled
from horovod.tensorflow.gradients import GradientReduction
from horovod.tensorflow.tensors import rank_op, size_op


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("traced", [False, True])
def test_gradients_of_several_calls_are_used_after_the_last_one(average: bool, traced: bool) -> None:
    aggregation = Aggregation(2, average=average)
    total, table, skipped = tf.Variable([0.0]), tf.Variable([[0.0], [0.0]]), tf.Variable(0)

    def use(sums: list[Any]) -> None:
        assert sums[1] is None, "no call had a gradient for it"
        total.assign(sums[0])
        table.assign(sums[2])

    def add(value: Any) -> None:
        rows = tf.IndexedSlices(value[tf.newaxis], tf.constant([1]), tf.constant([2, 1]))
        aggregation.add([value, None, rows], use, lambda: skipped.assign_add(1))

    call = tf.function(add) if traced else add
    seen = []
    for value in (1.0, 3.0, 5.0, 9.0):
        call(tf.constant([value]))
        seen.append((float(total[0]), table.numpy().ravel().tolist(), int(skipped)))
    factor = 0.5 if average else 1.0
    first, second = 4.0 * factor, 14.0 * factor
    assert seen == [
        (0.0, [0.0, 0.0], 1),
        (first, [0.0, first], 1),
        (first, [0.0, first], 2),
        (second, [0.0, second], 2),
    ]


@pytest.mark.parametrize("traced", [False, True])
def test_a_gradient_that_only_some_calls_have_is_in_the_sum_once(traced: bool) -> None:
    aggregation, used = Aggregation(2, average=False), []
    total = tf.Variable([0.0, 0.0])

    def use(sums: list[Any]) -> None:
        used.append(sums[2])
        total.assign([tf.reduce_sum(sums[0]), 0.0 if sums[1] is None else tf.reduce_sum(sums[1])])

    def add(first: Any, second: Any) -> None:
        aggregation.add([first, second, None], use)

    call = tf.function(add) if traced else add
    one, ten = tf.constant([1.0]), tf.constant([10.0])
    late, early = ((one, None), (one, ten)), ((one, ten), (one, None))
    for given in (early, early, late) if traced else (late, early, early):
        for first, second in given:
            call(first, second)
        assert total.numpy().tolist() == [2.0, 10.0]
    assert set(used) == {None}, "no call had a gradient for the third"


@pytest.mark.parametrize(
    ("value", "factor", "wanted"),
    [
        (tf.constant([3, -3]), 0.5, [1, -1]),
        (tf.constant([2**53 + 1], tf.int64), 1.0, [2**53 + 1]),
        (tf.constant([True, False]), 0.5, [True, False]),
        (tf.constant([1.0], tf.float16), 1 / 3, [np.float16(1 / 3)]),
        (tf.constant([1.0], tf.float64), 0.1, [0.1]),
    ],
)
def test_factors_are_applied_in_the_precision_of_horovod(value: Any, factor: float, wanted: list[Any]) -> None:
    result = scaled(value, factor)
    assert result.dtype == value.dtype
    assert result.numpy().tolist() == wanted


def test_half_precision_is_for_floats_and_taken_back() -> None:
    for value in (tf.constant([1.5]), tf.constant([1.5], tf.float64), tf.constant([3])):
        packed, context = hvd.Compression.fp16.compress(value)
        assert packed.dtype == (tf.float16 if value.dtype.is_floating else value.dtype)
        back = hvd.Compression.fp16.decompress(packed, context)
        assert (back.dtype, back.numpy().tolist()) == (value.dtype, value.numpy().tolist())
    assert hvd.Compression.none.compress(value) == (value, None)
    assert hvd.Compression.none.decompress(value, None) is value
    from horovod.tensorflow.compression import Compressor

    for method, words in ((Compressor.compress, (value,)), (Compressor.decompress, (value, None))):
        with pytest.raises(NotImplementedError, match="write both methods"):
            method(*words)


def test_sets_are_equal_by_their_ranks_whatever_their_order_and_kind() -> None:
    one, other = hvd.ProcessSet([2, 0, 2]), hvd.ProcessSet(np.array([0, 2]))
    assert one == other and hash(one) == hash(other) and one.ranks == [0, 2]
    assert one != hvd.ProcessSet([0]) and one != [0, 2]
    assert repr(one) == "ProcessSet(process_set_id=None, ranks=[0, 2], mpi_comm=None)"
    assert (one.size(), one.rank(), one.included()) == (None, None, None)
    for wrong in (1, [0.5], "01"):
        with pytest.raises(ValueError, match="allowed are numbers of ranks"):
            hvd.ProcessSet(wrong)


def test_a_set_of_one_process_is_found_until_it_is_removed() -> None:
    hvd.init([])
    try:
        added = hvd.add_process_set([0])
        assert process_sets.find_process_set(added.process_set_id) is added
        assert process_sets.registered(hvd.ProcessSet([0])) is added
        assert process_sets.get_process_set_ids_and_ranks() == {0: [0], added.process_set_id: [0]}
        assert (added.rank(), added.size(), added.included()) == (0, 1, True)
        with pytest.raises(ValueError, match="was added before: remove that one, or use it"):
            hvd.add_process_set([0])
        with pytest.raises(ValueError, match=r"ranks of a process set are \[0, 3\]"):
            hvd.add_process_set([3, 0])
        assert hvd.remove_process_set(added) and not hvd.remove_process_set(added)
        assert process_sets.find_process_set(1) is None
        again = hvd.ProcessSet([0])
        assert process_sets.registered(again) is again, "nothing is registered"
    finally:
        hvd.shutdown()
    assert hvd.global_process_set.ranks == [], "there are no ranks before init"


def test_ranks_as_tensors_know_the_sets() -> None:
    with joined():
        assert (int(rank_op()), int(size_op())) == (1, 2)
        with pytest.raises(ValueError, match="9"):
            size_op(process_set_id=9)


def test_batch_normalization_refuses_what_it_cannot_honor_and_keeps_its_set() -> None:
    for name, value in (("renorm", True), ("virtual_batch_size", 4), ("synchronized", True), ("fused", True)):
        with pytest.raises(ValueError, match=f"hvd.SyncBatchNormalization: {name} is {value}; leave it out"):
            hvd.SyncBatchNormalization(**{name: value})
    with pytest.raises(ValueError, match="ranks is 1; allowed are numbers of ranks"):
        hvd.SyncBatchNormalization(process_set=1)
    plain, everyone = hvd.SyncBatchNormalization(), hvd.SyncBatchNormalization(process_set=hvd.global_process_set)
    assert "process_set" not in plain.get_config() and "process_set" not in everyone.get_config()
    layer = hvd.SyncBatchNormalization(process_set=hvd.ProcessSet([1, 0]), momentum=0.5)
    twin = hvd.SyncBatchNormalization.from_config(layer.get_config())
    assert layer.get_config()["process_set"] == [0, 1]
    assert (twin.process_set, twin.momentum) == (layer.process_set, 0.5)


def test_moments_are_sent_in_training_alone_and_only_if_there_are_others() -> None:
    batch = tf.constant([[1.0], [3.0]])
    with joined() as pair:
        layer = hvd.SyncBatchNormalization(momentum=0.0)
        layer(batch, training=False)
        assert not pair.sent
        layer(batch, training=True)
        (packed,) = pair.sent
        assert packed.ravel().tolist() == [4.0, 10.0, 2.0], "sum, sum of squares, count"
        half = hvd.SyncBatchNormalization(dtype="float16")
        half(tf.cast(batch, tf.float16), training=True)
        assert pair.sent[1].dtype == np.float64
        with pytest.raises(ValueError, match=r"call hvd\.add_process_set first"):
            hvd.SyncBatchNormalization(process_set=hvd.ProcessSet([1]))(batch, training=True)
    alone = hvd.SyncBatchNormalization(momentum=0.0)
    alone(batch, training=True)  # without init
    np.testing.assert_allclose(np.asarray(alone.moving_mean), [2.0])


def test_gradients_that_stay_on_their_rank_are_divided_unless_it_is_switched_off() -> None:
    rows = tf.IndexedSlices(tf.constant([[2.0]]), tf.constant([1]), tf.constant([3, 1]))
    for scales, wanted in ((True, 1.0), (False, 2.0)):
        reduction = GradientReduction("test", hvd.Compression.none, False, hvd.Average, 1.0, None, scales)
        with joined() as pair:
            dense, sparse, none = reduction.reduce([tf.constant(2.0), rows, None], local=frozenset({0, 1, 2}))
            assert not pair.sent
        assert (float(dense), sparse.values.numpy().tolist(), none) == (wanted, [[wanted]], None)
        assert sparse.indices.numpy().tolist() == [1]


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_a_time_limit_that_is_no_number_is_refused_by_name(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_START_TIMEOUT", text)
    hvd.shutdown()
    with pytest.raises(
        RuntimeError, match=rf"hvd\.init\(\): HOROVOD_START_TIMEOUT is '{text}'; allowed is a number >= 0"
    ):
        hvd.init()
    assert not hvd.is_initialized()


@pytest.mark.parametrize("root", [2, -1, 0.5, "0", None])
def test_a_root_that_is_no_rank_is_refused_before_anything_is_sent(root: Any) -> None:
    variables = [tf.Variable(1.0)]
    with joined() as pair:
        for call in (
            lambda: hvd.broadcast(tf.ones([1]), root),
            lambda: hvd.broadcast_object("mine", root),
            lambda: hvd.broadcast_variables(variables, root),
            lambda: hvd.broadcast_(variables, root),
            lambda: hvd.BroadcastGlobalVariablesHook(root),
        ):
            with pytest.raises(ValueError, match=r"root_rank is .*; allowed is 0 to 1"):
                call()
        for accepted in (np.int64(1), tf.constant(1)):
            assert hvd.broadcast(tf.constant(3.0), accepted).numpy() == 3.0
        pair.sent.clear()
        assert hvd.broadcast_variables([], 1) is None
        assert hvd.broadcast_([], 1) == hvd.grouped_allreduce([]) == hvd.grouped_allgather([]) == []
        assert hvd.grouped_reducescatter([]) == []
        assert not pair.sent, "there is nothing to send"


def test_ops_that_a_dtype_or_a_number_of_ranks_does_not_have_are_refused() -> None:
    with joined() as pair:
        for op in (hvd.Min, hvd.Max, hvd.Product):
            with pytest.raises(
                ValueError, match=f"op is {op.name} for a tensor of complex64; allowed is Sum or Average"
            ):
                hvd.allreduce(tf.constant([1j], tf.complex64), op=op)
        with pytest.raises(ValueError, match="op is Adasum for a tensor of int32; allowed are floats"):
            hvd.grouped_allreduce([tf.constant([1.0]), tf.constant([1])], op=hvd.Adasum)
        for call in (hvd.reducescatter, lambda x, op: hvd.grouped_reducescatter([x], op=op)):
            with pytest.raises(ValueError, match=r"allowed is hvd\.Sum or hvd\.Average"):
                call(tf.constant([1.0]), op=hvd.Adasum)
        pair.size = 3
        with pytest.raises(NotImplementedError, match="op is Adasum with 3 ranks; allowed is a power of two"):
            hvd.allreduce(tf.constant([1.0]), op=hvd.Adasum)
        assert not pair.sent


def test_a_tape_gives_gradients_in_the_form_of_its_sources() -> None:
    weight, local, idle = tf.Variable([1.0]), tf.Variable([2.0]), tf.Variable([3.0])
    with joined():
        for options, of_idle in (({}, None), ({"unconnected_gradients": tf.UnconnectedGradients.ZERO}, [0.0])):
            with tf.GradientTape(persistent=True) as plain:
                loss = weight * 3.0 + local * 4.0
            tape = hvd.DistributedGradientTape(plain, op=hvd.Sum)
            tape.register_local_source(local)
            got = tape.gradient(
                loss, {"own": [local], "idle": idle, "sum": (weight,)}, use_generic_names=True, **options
            )
            assert got["own"][0].numpy() == [2.0], "divided by the number of ranks"
            assert got["sum"][0].numpy() == [0.0], "the sum of the pair"
            assert got["idle"] is None if of_idle is None else got["idle"].numpy() == of_idle
            assert tape.gradient(loss, local, tf.constant([0.5])).numpy() == [1.0]
            assert tape.gradient(loss, idle, **options) is None or of_idle == [0.0]
            assert tape.gradient(loss, []) == []


def test_optimizers_of_sessions_take_no_sums_and_all_say_what_they_take() -> None:
    for optimizer, given, words in (
        (
            tf.compat.v1.train.GradientDescentOptimizer(1.0),
            {"backward_passes_per_step": 2},
            "allowed is 1, or an optimi",
        ),
        (tf.keras.optimizers.SGD(), {"backward_passes_per_step": 1.5}, "is 1.5; allowed is an int >= 1"),
        (object(), {}, "allowed is an optimizer of Keras, tf_keras or tf.compat.v1.train"),
        (tf.keras.optimizers.SGD(), {"op": hvd.Product}, "allowed is hvd.Average, hvd.Sum or hvd.Adasum"),
    ):
        with pytest.raises(ValueError, match=rf"hvd\.DistributedOptimizer: .*{words}"):
            hvd.DistributedOptimizer(optimizer, **given)
        assert not hasattr(optimizer, "_horovod"), "it is unchanged"


def test_steps_with_a_distributed_optimizer_are_not_compiled_by_xla_and_others_as_before() -> None:
    from keras.src.trainers import trainer

    def jit(optimizer: Any) -> bool:
        model = tf.keras.Sequential([tf.keras.Input([1]), tf.keras.layers.Dense(1)])
        model.compile(optimizer, "mse")
        return bool(trainer.model_supports_jit(model))  # what compile() asks on a machine with a GPU

    assert jit(tf.keras.optimizers.SGD())
    distributed = hvd.DistributedOptimizer(tf.keras.optimizers.SGD())
    assert not jit(distributed)
    assert not jit(tf.keras.optimizers.LossScaleOptimizer(distributed)), "also inside another optimizer"
    assert jit(tf.keras.optimizers.SGD())
    patched = trainer.model_supports_jit
    hvd.DistributedOptimizer(tf.keras.optimizers.SGD())
    assert trainer.model_supports_jit is patched, "Keras is changed once"


def test_a_hook_adds_its_op_once_per_graph() -> None:
    with joined():
        hook = hvd.BroadcastGlobalVariablesHook(0)
        for _ in range(2):
            with tf.Graph().as_default() as graph:
                weight = tf.compat.v1.get_variable("weight", initializer=[5.0], use_resource=True)
                hook.begin()
                count = len(graph.get_operations())
                hook.begin()
                assert len(graph.get_operations()) == count
                with tf.compat.v1.Session() as session:
                    session.run(tf.compat.v1.global_variables_initializer())
                    hook.after_create_session(session, None)
                    assert session.run(weight).tolist() == [-5.0]
        with pytest.raises(RuntimeError, match=r"has no global variables; call hvd\.broadcast_variables"):
            hvd.broadcast_global_variables(0)
