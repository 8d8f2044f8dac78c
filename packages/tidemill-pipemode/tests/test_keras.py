"""Keras and strategies: the number of FIFOs that each pattern uses."""

import keras
import numpy as np
import pytest
import tensorflow as tf

# Keras warns about every dataset of unknown length at the end of its first epoch.
pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")

LINES = b"".join(f"{number % 7},{number % 2}\n".encode() for number in range(32))


def parse(line: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    numbers = tf.strings.to_number(tf.strings.split(line, ","))
    return tf.reshape(numbers[0], [1]), tf.reshape(numbers[1], [1])


def model() -> keras.Model:
    built = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    built.compile("sgd", "mse")
    return built


def test_fit_reads_a_fifo_per_epoch_and_evaluate_one(channels, reader):
    for epoch in range(4):
        channels.write(LINES, epoch)
    dataset = channels.dataset().map(parse).batch(8)
    trained = model()
    history = trained.fit(dataset, epochs=3, shuffle=False, verbose=0)
    assert len(history.history["loss"]) == 3
    assert channels.next_epoch == "3"
    trained.evaluate(dataset, verbose=0)
    assert channels.next_epoch == "4"


def test_fit_with_steps_per_epoch_reads_one_fifo_in_all(channels, reader):
    channels.write(LINES)
    dataset = channels.dataset().map(parse).batch(8)
    model().fit(dataset, epochs=2, steps_per_epoch=2, shuffle=False, verbose=0)
    assert channels.next_epoch == "1"


def test_training_and_validation_channels_are_read_alternately(channels, reader):
    for epoch in range(2):
        channels.write(LINES, epoch)
        channels.write(LINES, epoch, channel="validation")
    training = channels.dataset().map(parse).batch(8)
    validation = channels.dataset("validation").map(parse).batch(8)
    history = model().fit(training, validation_data=validation, epochs=2, shuffle=False, verbose=0)
    assert len(history.history["val_loss"]) == 2


def test_the_usual_dataset_chain_of_a_script_reads_all_records(channels, reader):
    for epoch in range(3):
        channels.write(LINES, epoch)
    dataset = channels.dataset().repeat(3).prefetch(10).map(parse, num_parallel_calls=10).batch(64)
    assert [len(features) for features, _ in dataset.as_numpy_iterator()] == [64, 32]


@pytest.mark.parametrize("form", ["experimental_distribute_dataset", "fit"])
def test_a_mirrored_strategy_reads_every_record_once(channels, reader, form):
    for epoch in range(2):  # under a strategy Keras requests one epoch more than it trains
        channels.write(LINES, epoch)
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        trained = model()
    dataset = channels.dataset().map(parse).batch(8)
    if form == "fit":
        trained.fit(dataset, shuffle=False, verbose=0)
    else:
        batches = [np.asarray(features) for features, _ in strategy.experimental_distribute_dataset(dataset)]
        assert sum(map(len, batches)) == 32
        assert channels.next_epoch == "1"


def test_an_exported_model_does_not_contain_the_reader(channels, reader, tmp_path):
    channels.write(LINES)
    trained = model()
    trained.fit(channels.dataset().map(parse).batch(8), shuffle=False, verbose=0)
    trained.export(str(tmp_path / "export"), verbose=False)
    assert b"TidemillPipe" not in (tmp_path / "export" / "saved_model.pb").read_bytes()


def test_a_dataset_made_inside_a_function_works(channels, reader):
    channels.write(b"a\nb\n")

    @tf.function
    def count() -> tf.Tensor:
        return channels.dataset().reduce(tf.constant(0), lambda total, _: total + 1)

    assert count().numpy() == 2
