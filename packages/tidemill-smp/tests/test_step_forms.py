"""The forms of `smp.step`: arguments of the body and results, on ranks."""

from typing import Any

import ranks

MANUAL = {"auto_partition": False, "default_partition": 0, "microbatches": 2}


def test_a_step_may_be_a_method_or_any_callable() -> None:
    for shapes, messages in ranks.run(2, call_all_forms, config=MANUAL):
        forms = ("bare", "brackets", "method", "partial", "object", "argument of a function")
        assert shapes == dict.fromkeys(forms, (8, 4))
        # Its name contains no address: ranks compare their inputs under this name.
        assert "call 2 of forward: 'x' on rank 1 (partition 1)" in messages["method"]


def call_all_forms() -> Any:
    import functools

    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.backend.exceptions import SMPInputMismatchError

    net = models.distributed(models.Chain)(2)
    # At different addresses on each rank, as in scripts whose ranks differ between steps.
    fillers = [object() for _ in range(1 + 1000 * smp.rank())]

    class Trainer:
        @smp.step(input_signature=[tf.TensorSpec([None, models.FEATURES])])
        def forward(self, x: Any) -> Any:
            return net(x)

    class Forward:
        def __call__(self, x: Any) -> Any:
            return net(x)

    def forward(scale: float, x: Any) -> Any:
        return net(x) * scale

    trainer = Trainer()
    forms = {
        "bare": smp.step(lambda x: net(x)),
        "brackets": smp.step()(lambda x: net(x)),
        "method": trainer.forward,
        "partial": smp.step(functools.partial(forward, 2.0)),
        "object": smp.step(Forward()),
    }
    x = tf.ones([8, models.FEATURES])
    shapes = {name: tuple(form(x).merge().shape) for name, form in forms.items()}
    merged = tf.function(lambda step, x: step(x).merge())
    shapes["argument of a function"] = tuple(merged(forms["bare"], x).shape)
    del fillers
    messages = {}
    try:
        trainer.forward(x * (1.0 + smp.rank()))
    except SMPInputMismatchError as error:
        messages["method"] = str(error)
    return shapes, messages


def test_arguments_are_split_on_their_axis_or_passed_whole() -> None:
    for found in ranks.run(2, cut_arguments, config=MANUAL):
        assert found == {
            "columns": [(3, 4), (3, 4)],
            "first": [[0, 1, 2, 3], [4, 5, 6, 7]],
            "flag": [True, True],
            "scale": (4, 2),
            "number": 3,
        }


def cut_arguments() -> Any:
    import numpy as np
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp

    net = models.distributed(models.Chain)(2)

    @smp.step(non_split_inputs=["first_batch", "scale"], input_split_axes={"by_column": 1})
    def forward(x: Any, by_column: Any, first_batch: Any, scale: Any, number: int) -> Any:
        loss = tf.reduce_mean(net(x)) * tf.reduce_sum(scale)
        return {"loss": loss, "columns": by_column, "flag": first_batch, "scale": scale, "number": number}

    @tf.function
    def call(first_batch: Any) -> Any:
        by_column = np.arange(24).reshape(3, 8)
        return forward(
            np.ones([8, models.FEATURES], "float32"),
            by_column,
            first_batch=first_batch,
            scale=tf.ones([4, 2]),
            number=3,
        )

    found = call(tf.constant(True))
    columns = found["columns"].outputs
    return {
        "columns": [tuple(part.shape) for part in columns],
        "first": [part[0].numpy().tolist() for part in columns],
        "flag": [bool(flag) for flag in found["flag"].outputs],
        "scale": tuple(found["scale"].outputs[1].shape),
        "number": int(found["number"]),
    }


def test_variables_that_a_step_returns_have_their_value_on_all_ranks() -> None:
    (first, pairs), (other, _) = ranks.run(2, return_variables, config=MANUAL)
    assert first == other
    assert first["tensorflow"] == first["keras"] == [[1.0, 2.0, 3.0, 4.0]] * 2
    assert pairs == [("StepOutput", "StepOutput")] * 10


def return_variables() -> Any:
    """Return values by microbatch of a variable of the last partition, and the kinds of compute_gradients' results."""
    import keras
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.tensorflow.variables import is_remote

    net, optimizer = models.distributed(models.Chain)(2), keras.optimizers.SGD()
    x = tf.ones([8, models.FEATURES])
    smp.step(lambda x: net(x))(x)  # partitions the model, so that the steps below have variables of the other rank
    assert is_remote(net.head.bias) == (smp.rank() == 0)
    if smp.rank() == 1:
        net.head.bias.assign([1.0, 2.0, 3.0, 4.0])

    @smp.step
    def forward(x: Any) -> Any:
        return net(x), {"tensorflow": net.head.bias.value, "keras": net.head.bias}

    @smp.step
    def gradients(x: Any) -> Any:
        return optimizer.compute_gradients(tf.reduce_mean(net(x)), net.trainable_variables)

    _, found = forward(x)
    values = {name: [part.numpy().tolist() for part in output.outputs] for name, output in found.items()}
    return values, [(type(gradient).__name__, type(variable).__name__) for gradient, variable in gradients(x)]


def test_results_that_are_no_tensors_are_those_of_the_first_microbatch_or_refused_if_strict() -> None:
    for first, texts in ranks.run(2, return_other_things, config=MANUAL):
        assert first == (0, "text", None, [0, 1, 2])
        assert "is not a tensor differs between microbatches: [0, 1]" in texts["number"]
        assert "is not a tensor differs between microbatches: [array([0]), array([1])]" in texts["array"]
        assert texts["same"] == "3"


def return_other_things() -> Any:
    import numpy as np

    import models
    import smdistributed.modelparallel.tensorflow as smp
    from sessions import configured
    from smdistributed.modelparallel.backend.exceptions import SMPUsageError

    class Number:
        def smp_slice(self, num_mb: int, mb: int, axis: int) -> int:
            return mb

    net = models.distributed(models.Chain)(2)
    x = np.ones([8, models.FEATURES], "float32")

    @smp.step
    def forward(x: Any, number: int) -> Any:
        return net(x), {"number": number, "text": "text", "none": None, "array": np.arange(3)}

    found = forward(x, Number())[1]
    calls = {
        "number": lambda x, number: (net(x), number),
        "array": lambda x, number: (net(x), np.array([number])),
        "same": lambda x, number: (net(x), np.arange(3)),
    }
    texts = {}
    with configured(strict=True):
        for name, call in calls.items():
            try:
                texts[name] = str(len(smp.step(call)(x, Number())[1]))
            except SMPUsageError as error:
                texts[name] = str(error)
    none = found["none"].accumulate()
    return (int(found["number"]), found["text"], none, found["array"].tolist()), texts


def test_reduced_retracing_of_an_eager_step_has_two_option_names() -> None:
    for traces in ranks.run(2, count_traces, config=MANUAL):
        assert traces == {"none": 4, "reduce_retracing": 2, "experimental_relax_shapes": 2}


def count_traces() -> dict[str, int]:
    """Return how often a step is traced for four batch sizes."""
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp

    net, traces = models.distributed(models.Chain)(2), {}
    for option in ("none", "reduce_retracing", "experimental_relax_shapes"):
        traces[option] = 0

        @smp.step(**({} if option == "none" else {option: True}))
        def forward(x: Any, option: str = option) -> Any:
            traces[option] += 1
            return net(x)

        for size in (4, 8, 12, 16):
            assert forward(tf.ones([size, models.FEATURES])).merge().shape == [size, models.CLASSES]
    return traces


def test_partition_marks_have_no_effect_with_auto_partition() -> None:
    for units, shape, plain in ranks.run(2, mark_partitions_with_auto_partition, config={"microbatches": 2}):
        assert sorted(set(units)) == [0, 1]
        assert shape == (8, 4)
        assert "4 partitions" in plain


def mark_partitions_with_auto_partition() -> Any:
    """Return the placement of a model written for four partitions, its outputs, and the planned cut into four."""
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.tensorflow.engine.engine import engine

    net = models.distributed(models.Chain)(4)
    x = tf.ones([8, models.FEATURES])
    shape = tuple(smp.step(lambda x: net(x))(x).merge().shape)
    paper = smp.plan(models.distributed(models.Chain)(4), x, partitions=4)
    return list(engine().decided.automatic.values()), shape, str(paper)


def test_a_placed_model_is_planned_without_init_and_as_configured_with_it() -> None:
    with ranks.Job(1, None) as job:
        (texts,) = job.call(plan_without_init)
    assert all("2 partitions, 4 microbatches" in text for text in texts)
    (alive,) = ranks.run(1, plan_as_configured, config={"partitions": 1})
    assert alive == ["x1", "x1"]


def plan_without_init() -> list[str]:
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp

    spec = tf.TensorSpec((16, models.FEATURES))
    assert not smp.core.initialized
    return [str(smp.plan(models.distributed(models.Chain)(2), spec, partitions=2, microbatches=4))]


def plan_as_configured() -> list[str]:
    """Return the live microbatches of each partition according to the report, with a bound in the parameters."""
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp
    from sessions import configured

    spec = tf.TensorSpec((16, models.FEATURES))
    with configured(partitions=2, microbatches=4, active_microbatches=1):
        rows = str(smp.plan(models.distributed(models.Chain)(1), spec)).splitlines()[1:3]
    return [next(word for word in row.split() if word.startswith("x")) for row in rows]
