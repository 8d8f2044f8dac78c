"""Functions that the tests of checkpoints run on the ranks."""

import contextlib
import dataclasses
import itertools
import operator
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.python.checkpoint import checkpoint_management

import models
import smdistributed.modelparallel.tensorflow as smp
from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError, SMPPeerLostError
from smdistributed.modelparallel.tensorflow import session, utils
from smdistributed.modelparallel.tensorflow.keras_api import (
    IS_KERAS_2,
    layers_of,
    seeds_of,
    tensorflow_variable,
    tracked_variables,
)
from smdistributed.modelparallel.tensorflow.variables import is_remote

CONFIG = {"auto_partition": False, "default_partition": 0, "microbatches": 2}
BATCH = 8


def forget_the_step_before() -> None:
    """Reset to the state after `smp.init`, in which nothing is partitioned."""
    session.set_current(dataclasses.replace(session.current()))


class Training:
    """A model, its optimizer and a step counter, trained as in a script."""

    def __init__(
        self, model: str = "chain", optimizer: str = "Adam", *, seed: int = 3, cut_for: int | None = None
    ) -> None:
        forget_the_step_before()
        if IS_KERAS_2:
            # Otherwise random layers use ops whose state is not saved in checkpoints.
            tf.keras.backend.experimental.enable_tf_random_generator()
        tf.keras.utils.set_random_seed(seed)
        self.model = models.distributed(models.MODELS[model])(cut_for or smp.mp_size())
        self.optimizer = make_optimizer(optimizer)
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        self.checkpoint = tf.train.Checkpoint(model=self.model, optimizer=self.optimizer, step=self.step)
        self._train: Any = None

    def manager(self, directory: str | Path, **options: Any) -> smp.CheckpointManager:
        """Return the manager of the checkpoints in a directory."""
        return smp.CheckpointManager(self.checkpoint, directory, **options)

    def run_to(self, last: int) -> None:
        """Train until step `last`; the batch of each step, shared by all replicas, depends on the step number only."""
        if self._train is None:
            self._train = self._make()
        for number in range(int(self.step), last):
            x, y = batch_of(number)
            mine = slice(smp.dp_rank(), None, smp.dp_size())
            self._train(tf.constant(x[mine]), tf.constant(y[mine]))
            self.step.assign_add(1)

    def look(self) -> dict[str, Any]:
        """Partition the model and create the slots without changing values; return what this rank holds."""
        model = self.model

        @smp.step
        def evaluate(x: Any) -> Any:
            return model(x, training=False)

        evaluate(tf.zeros((BATCH // smp.dp_size(), models.FEATURES)))
        build = getattr(self.optimizer, "build", None) or self.optimizer._create_all_weights
        build(model.trainable_variables)
        return self.held()

    def _make(self) -> Any:
        model, optimizer = self.model, self.optimizer

        @smp.step
        def forward_backward(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = models.loss_of(model, x, y)
            return tape.gradient(loss, model.trainable_variables), loss

        @tf.function
        def train(x: Any, y: Any) -> Any:
            grads, loss = forward_backward(x, y)
            variables = model.trainable_variables
            optimizer.apply_gradients(zip([grad.accumulate() for grad in grads], variables))  # noqa: B905
            return loss.reduce_mean()

        return train

    def held(self) -> dict[str, Any]:
        """Return the values of model and optimizer on this rank, by index."""
        return held(self.model, self.optimizer)


def batch_of(number: int) -> tuple[Any, Any]:
    """Return the batch of a step."""
    random = np.random.RandomState(number)
    x = random.randn(BATCH, models.FEATURES).astype("float32")
    return x, random.randn(BATCH, models.CLASSES).astype("float32")


def make_optimizer(name: str) -> Any:
    """Return the optimizer of that name in `tf.keras.optimizers`."""
    options = {"use_ema": True, "ema_overwrite_frequency": 2} if name == "RMSprop" else {}
    return operator.attrgetter(name)(tf.keras.optimizers)(0.01, **options)


def held(model: Any, optimizer: Any) -> dict[str, Any]:
    """Return the values of variables that this rank holds, by index."""
    listed = [("model", tracked_variables(model)), ("optimizer", optimizer.variables())]
    return {
        f"{whose}/{number}": np.array(variable)
        for whose, variables in listed
        for number, variable in enumerate(variables)
        if not is_remote(variable)
    }


def saved(model: str, directory: str, optimizer: str = "Adam") -> tuple[dict[str, Any], dict[str, Any]]:
    """Train to step 3, save, and train to step 5; return the values on this rank at both steps."""
    training = Training(model, optimizer)
    training.run_to(3)
    training.manager(directory).save()
    at_three = training.held()
    training.run_to(5)
    return at_three, training.held()


def trained_plainly(model: str, pieces: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of `saved`, trained by plain Keras in one process; see `models.plain_steps` for `pieces`."""
    tf.keras.utils.set_random_seed(3)
    plain, updates = models.MODELS[model](smp.mp_size()), make_optimizer("Adam")
    at = []
    for steps in (range(3), range(3, 5)):
        models.plain_steps(plain, updates, list(map(batch_of, steps)), pieces=pieces)
        at.append(held(plain, updates))
    return at[0], at[1]


def resumed(model: str, directory: str, when: str, prefix: str | None = None, optimizer: str = "Adam") -> Any:
    """Restore into a new model with other weights, and train to step 5; return the values before and after."""
    training = Training(model, optimizer, seed=99)
    manager = training.manager(directory)
    if when == "after":
        training.run_to(1)
    assert manager.restore(prefix) is not None
    assert int(training.step) == 3, "the counter is restored at once"
    at_three = training.look()
    training.run_to(5)
    return at_three, training.held()


def written_by(directory: str) -> bool:
    """Train and save; return whether this rank wrote a file of the checkpoint."""
    training = Training()
    training.run_to(1)
    with mock.patch.object(tf.train.Checkpoint, "write", autospec=True, side_effect=tf.train.Checkpoint.write) as write:
        training.manager(directory).save()
    return bool(write.called)


def seeds_after_a_step() -> dict[str, Any]:
    """Train with dropout that each replica seeds differently; return the states of its random layers, by index."""
    training = Training("language", seed=3 + smp.dp_rank())
    training.run_to(1)
    seeds = [seed for layer in layers_of(training.model) for seed in seeds_of(layer)]
    return {str(place): np.array(seed) for place, seed in enumerate(seeds) if not is_remote(seed)}


def save_in_intervals(directory: str) -> Any:
    """Call save after each step with an interval of two, with one restart; return the steps that were saved."""
    value, step = tf.Variable(0), tf.Variable(0, dtype=tf.int64)
    saved = []
    for last in (4, 8):
        manager = smp.CheckpointManager(
            tf.train.Checkpoint(value=value, step=step),
            directory,
            checkpoint_interval=2,
            step_counter=step,
            init_fn=lambda: value.assign(100),
        )
        step.assign(0)
        value.assign(0)
        restored = manager.restore_or_initialize()
        assert (restored is None) == (last == 4)
        assert int(value) == 100, "initialized once, and restored then"
        while step < last:
            step.assign_add(1)
            if manager.save() is not None:
                saved.append(int(step))
    assert manager.save() is None
    assert manager.save(check_interval=False) is not None
    assert manager.save(check_interval=False) is None, "there is one of this step"
    step.assign_add(1 + smp.rank())
    try:
        manager.save()
    except SMPCheckpointError as error:
        return saved, str(error), [Path(path).name for path in manager.checkpoints]
    raise AssertionError


def nothing_to_restore(directory: str, when: str) -> Any:
    """Restore from an empty directory."""
    training = Training()
    manager = training.manager(directory)
    if when == "after":
        training.run_to(1)
    restored = [manager.restore(), manager.restore("ckpt-2")]
    training.run_to(2)
    return restored, (manager.latest_checkpoint, manager.checkpoints)


def several(directory: str) -> Any:
    """Save steps 1, 2 and 3; restore by name; then restore step 2, train to step 4, and save with `max_to_keep=2`."""
    training = Training()
    manager = training.manager(directory)
    for last in (1, 2, 3):
        training.run_to(last)
        manager.save()
    steps = {}
    for name in (None, "ckpt-2", "ckpt-1", "ckpt-7"):
        again = Training(seed=5)
        manager = again.manager(directory, max_to_keep=2)
        manager.restore(name)
        steps[name] = int(again.step)
    paths = manager.checkpoints
    fresh = Training(seed=5)
    manager = fresh.manager(directory, max_to_keep=2)
    manager.restore("ckpt-1")
    fresh.run_to(4)
    saved = manager.save()
    assert saved == manager.latest_checkpoint == paths[1]
    last = Training()
    manager = last.manager(directory)
    manager.restore()
    left = sorted(path.name for path in Path(paths[0]).parent.iterdir())
    assert left == ["checkpoint", *(f"ckpt-{n}.{end}" for n in (2, 3) for end in ("data-00000-of-00001", "index"))]
    return paths, steps, (len(paths), int(last.step), [Path(path).name for path in manager.checkpoints])


def latest_of(directory: str) -> Any:
    """Return the latest checkpoint according to the manager and to TensorFlow."""
    manager = Training().manager(directory)
    return manager.latest_checkpoint, tf.train.latest_checkpoint(f"{directory}/mp_rank_{smp.mp_rank()}")


def resumed_and_saved(directory: str) -> Any:
    """Restore, train two steps and save. Return what was restored, its step, and what was saved."""
    training = Training(seed=5)
    manager = training.manager(directory)
    restored = manager.restore()
    step = int(training.step)
    training.run_to(step + 2)
    return restored, step, manager.save(), Training().manager(directory).restore()


class Killed(BaseException):
    """Simulates a kill: no handler may clean up afterwards."""


class Crashing:
    """A group of ranks, one of which may crash. The other ranks detect the lost peer at the next exchange."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def allgather_objects(self, value: Any, *, what: str = "checkpoint") -> list[Any]:
        answers = self._group.allgather_objects(value, what=what)
        if "crashed" in answers:
            raise SMPPeerLostError("another rank died")
        return answers

    def barrier(self) -> None:
        self._group.barrier()


def crashes(directory: str, number: int | None, victim: int) -> list[int]:
    """Crash before each file operation in turn; return the value that all ranks restore after each crash."""
    now = session.current()
    outcomes = []
    try:
        for place in itertools.count():
            session.set_current(dataclasses.replace(now, world_group=Crashing(now.world_group)))
            root = f"{directory}/{place}"
            value, crashed = tf.Variable(0), False
            manager = smp.CheckpointManager(tf.train.Checkpoint(value=value), root, max_to_keep=1)
            manager.save(checkpoint_number=number)
            value.assign(1)
            manager.save(checkpoint_number=number)
            value.assign(2)
            try:
                with contextlib.ExitStack() as stack:
                    if smp.rank() == victim:
                        stack.enter_context(_crash_before(place))
                    manager.save(checkpoint_number=number)
                now.world_group.allgather_objects("done", what="checkpoint")
            except Killed:
                crashed = True
                now.world_group.allgather_objects("crashed", what="checkpoint")
            except SMPPeerLostError:
                pass
            if not any(now.world_group.allgather_objects(crashed)):
                return outcomes
            outcomes.append(_after_the_crash(root, number))
    finally:
        session.set_current(now)
    raise AssertionError


def _after_the_crash(root: str, number: int | None) -> int:
    value = tf.Variable(-1)
    manager = smp.CheckpointManager(tf.train.Checkpoint(value=value), root, max_to_keep=1)
    path = manager.restore()
    assert path == manager.latest_checkpoint == manager.checkpoints[-1]
    assert len(manager.checkpoints) <= 2, "what was to be deleted may still be there"
    restored = int(value)
    value.assign(3)
    latest = manager.save(checkpoint_number=number)
    value.assign(-1)
    manager.restore()
    assert int(value) == 3
    files = sorted(path.name for path in Path(root, f"mp_rank_{smp.mp_rank()}").iterdir())
    name = Path(latest).name
    assert files == ["checkpoint", f"{name}.data-00000-of-00001", f"{name}.index"], files
    smp.barrier()
    assert sorted(path.name for path in Path(root).iterdir()) == [f"{name}.json", "mp_rank_0", "mp_rank_1"]
    smp.barrier()
    return restored


@contextlib.contextmanager
def _crash_before(place: int) -> Any:
    """Crash before the file operation with that number, and execute none afterwards."""
    count = itertools.count()

    def watched(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if next(count) >= place:
                raise Killed
            return original(*args, **kwargs)

        return call

    with contextlib.ExitStack() as stack:
        for name in ("replace", "unlink", "rmdir", "mkdir", "fsync"):
            stack.enter_context(mock.patch.object(os, name, watched(getattr(os, name))))
        management = checkpoint_management
        for owner, name in ((tf.train.Checkpoint, "write"), (management, "update_checkpoint_state_internal")):
            stack.enter_context(mock.patch.object(owner, name, watched(getattr(owner, name))))
        yield


def unwritable(directory: str) -> Any:
    """Make the second save fail on rank 1."""
    value = tf.Variable(1)
    manager = smp.CheckpointManager(tf.train.Checkpoint(value=value), directory)
    manager.save()
    value.assign(2)
    failing = mock.patch.object(tf.train.Checkpoint, "write", side_effect=OSError(28, "No space left on device"))
    try:
        with failing if smp.rank() == 1 else contextlib.nullcontext():
            manager.save()
    except SMPCheckpointError as error:
        manager.restore()
        return str(error), (Path(manager.latest_checkpoint).name, int(value))
    raise AssertionError


def side_by_side(directory: str) -> Any:
    """Two managers whose names share a prefix use one directory; one checkpoint has a root object of the script."""
    value, best = tf.Variable(1), tf.Variable(10)
    manager = smp.CheckpointManager(tf.train.Checkpoint(value=value), directory, max_to_keep=1)
    other = smp.CheckpointManager(tf.train.Checkpoint(best=best), directory, checkpoint_name="ckpt-best")
    root = tf.Module()
    root.value, extra = tf.Variable(100), tf.Variable(1000)
    rooted = smp.CheckpointManager(tf.train.Checkpoint(root, extra=extra), directory, checkpoint_name="rooted")
    for each in (manager, other, rooted, manager):
        each.save()
    for variable in (value, best, root.value, extra):
        variable.assign(-1)
    restored = [Path(each.restore() or "").name for each in (manager, other, rooted)]
    names = [[Path(path).name for path in each.checkpoints] for each in (manager, other, rooted)]
    return restored, names, [int(variable) for variable in (value, best, root.value, extra)]


def sent_badly(directory: str) -> str:
    """Rank 1 sends files for which rank 0 has no space; return the errors of both."""
    value = tf.Variable(1)
    smp.CheckpointManager(tf.train.Checkpoint(value=value), directory).save()
    Path(f"{directory}/full").write_text("a file where a directory is wanted")
    smp.barrier()
    try:
        if smp.mp_rank() == 1:
            utils.send_checkpoint_files(directory, 0)
        else:
            utils.receive_checkpoint_files(f"{directory}/full", 1)
    except SMPCheckpointError as error:
        smp.barrier()
        return str(error)
    raise AssertionError


def exported(model: str, path: str, optimizer: str = "Adam") -> Any:
    """Train, and write a plain checkpoint."""
    training = Training(model, optimizer)
    training.run_to(3)
    training.manager(Path(path).parent / "unused").export(path)
    return training.held()


def read_and_written_plainly(model: str, source: str, target: str, optimizer: str = "Adam") -> Any:
    """Read a plain checkpoint and write one, in one process without the library's manager."""
    plain = models.MODELS[model](smp.mp_size())  # its smp.partition contexts then use a single partition
    updates, step = make_optimizer(optimizer), tf.Variable(0, dtype=tf.int64)
    models.plain_steps(plain, updates, models.batches(1, BATCH))
    checkpoint = tf.train.Checkpoint(model=plain, optimizer=updates, step=step)
    checkpoint.restore(source).assert_existing_objects_matched()
    assert int(step) == 3
    checkpoint.write(target)
    seeds = {id(tensorflow_variable(seed)) for layer in layers_of(plain) for seed in seeds_of(layer)}
    left_out = {f"model/{place}" for place, v in enumerate(tracked_variables(plain)) if id(v) in seeds}
    return {name: value for name, value in held(plain, updates).items() if name not in left_out}


def unreadable_slots(directory: str, way: str, optimizer: str) -> str:
    """Restore a checkpoint with one slot unreadable on one rank; return the errors raised when slots are created."""
    training = Training(optimizer=optimizer, seed=99)
    assert training.manager(directory).restore() is not None
    assert int(training.step) == 3, "what can be read is restored at once"
    try:
        if way == "train":
            training.run_to(5)
        else:
            training.look()
    except SMPCheckpointError as error:
        return str(error)
    raise AssertionError


class Pair:
    """Two models with separate steps, as in adversarial training."""

    def __init__(self, seed: int) -> None:
        forget_the_step_before()
        tf.keras.utils.set_random_seed(seed)
        self.models = [models.distributed(models.Chain)(smp.mp_size()) for _ in range(2)]
        self.optimizers = [tf.keras.optimizers.Adam(0.01) for _ in range(2)]
        self.steps = [
            self._make(model, optimizer) for model, optimizer in zip(self.models, self.optimizers, strict=True)
        ]
        self.checkpoint = tf.train.Checkpoint(models=self.models, optimizers=self.optimizers)

    def run(self, numbers: range) -> dict[str, Any]:
        """Train both on the batches with these numbers; return the values on this rank."""
        for number in numbers:
            random = np.random.RandomState(number)
            x = tf.constant(random.randn(BATCH, models.FEATURES), tf.float32)
            y = tf.constant(random.randn(BATCH, models.CLASSES), tf.float32)
            for step in self.steps:
                step(x, y)
        both = zip(self.models, self.optimizers, strict=True)
        return {f"{place}/{name}": value for place, pair in enumerate(both) for name, value in held(*pair).items()}

    @staticmethod
    def _make(model: Any, optimizer: Any) -> Any:
        @smp.step
        def forward_backward(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = models.loss_of(model, x, y)
            return tape.gradient(loss, model.trainable_variables)

        @tf.function
        def train(x: Any, y: Any) -> None:
            grads = [grad.accumulate() for grad in forward_backward(x, y)]
            optimizer.apply_gradients(zip(grads, model.trainable_variables))  # noqa: B905

        return train


def resume_both(directory: str) -> Any:
    """Train two models, save, and continue; then restore into new ones and continue. Return the values of both runs."""
    pair = Pair(3)
    pair.run(range(2))
    smp.CheckpointManager(pair.checkpoint, directory).save()
    undisturbed = pair.run(range(2, 4))
    again = Pair(99)
    assert smp.CheckpointManager(again.checkpoint, directory).restore() is not None
    return undisturbed, again.run(range(2, 4))


def refused(directory: str, when: str) -> str:
    """Restore into a model whose head, on rank 1, has another size."""
    with mock.patch.object(models, "CLASSES", 5):
        training = Training()
        manager = training.manager(directory)
        try:
            if when == "after":
                training.run_to(1)
            manager.restore()
            training.run_to(4)
        except SMPCheckpointError as error:
            return str(error)
        return ""


@dataclasses.dataclass
class Save:
    """Results of a saving job."""

    directory: str
    at_three: dict[str, Any]
    """Values at the save, step 3."""
    at_five: dict[str, Any]
    """Values two steps later."""

    @classmethod
    def of(cls, directory: str, results: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> "Save":
        """Combine the results of `saved` from all ranks."""
        at_three, at_five = zip(*results, strict=True)
        return cls(directory, merged(at_three), merged(at_five))


def merged(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Combine the values of all ranks, after asserting that they agree."""
    whole: dict[str, Any] = {}
    for held in results:
        for name, value in held.items():
            np.testing.assert_array_equal(whole.setdefault(name, value), value)
    return whole


def assert_equal(left: dict[str, Any], right: dict[str, Any], tolerance: float = 0.0) -> None:
    """Assert the same variables with the same values."""
    assert left and left.keys() == right.keys()
    for name, value in left.items():
        np.testing.assert_allclose(value, right[name], rtol=tolerance, atol=tolerance, err_msg=name)
