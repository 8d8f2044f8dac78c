"""The constructor's arguments, effects and refusals, in the documented order."""

import inspect

import pytest
import tensorflow as tf

import sagemaker_tensorflow
from sagemaker_tensorflow import PipeModeDataset, PipeModeDatasetException


def test_the_public_names_are_strings_and_sorted():
    assert sagemaker_tensorflow.__all__ == sorted(sagemaker_tensorflow.__all__)
    assert all(hasattr(sagemaker_tensorflow, name) for name in sagemaker_tensorflow.__all__)


def test_the_positional_arguments_and_their_defaults_are_those_of_the_contract():
    parameters = [
        (parameter.name, parameter.default)
        for parameter in inspect.signature(PipeModeDataset).parameters.values()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    assert parameters == [
        ("channel", inspect.Parameter.empty),
        ("record_format", "RecordIO"),
        ("state_dir", "/opt/ml/pipe_state"),
        ("pipe_dir", "/opt/ml/input/data"),
        ("config_dir", "/opt/ml/input/config"),
        ("benchmark", False),
        ("benchmark_records_interval", 0),
        ("max_corrupted_records_to_skip", 0),
    ]


def test_the_arguments_become_attributes(channels, reader):
    directories = map(str, (channels.state_dir, channels.pipe_dir, channels.config_dir))
    dataset = PipeModeDataset("training", "TFRecord", *directories, True, 7, 3)
    assert isinstance(dataset, tf.data.Dataset)
    assert dataset.element_spec == tf.TensorSpec([], tf.string)
    assert (dataset.channel, dataset.record_format) == ("training", "TFRecord")
    assert dataset.state_dir == str(channels.state_dir)
    assert dataset.pipe_dir == str(channels.pipe_dir)
    assert dataset.config_dir == str(channels.config_dir)
    assert (dataset.benchmark, dataset.benchmark_records_interval) == (True, 7)
    assert dataset.max_corrupted_records_to_skip == 3
    assert dataset.input_data_config["training"] == {"TrainingInputMode": "Pipe"}


def test_the_state_directory_is_made_even_if_the_config_is_missing(channels):
    (channels.config_dir / "inputdataconfig.json").unlink()
    with pytest.raises(OSError):
        channels.dataset()
    assert channels.state_dir.is_dir()


def test_an_unknown_channel_is_refused_before_its_format_is_checked(channels):
    with pytest.raises(PipeModeDatasetException, match=r"^Channel absent not found in Training Job InputDataConfig"):
        channels.dataset("absent", "nonsense")


def test_a_channel_in_file_mode_is_refused(channels):
    with pytest.raises(PipeModeDatasetException, match=r"^Channel other is not a PipeMode channel"):
        channels.dataset("other")


def test_the_input_mode_is_compared_without_case(channels):
    channels.configure(training="PIPE")
    channels.dataset()


def test_skipping_corrupt_records_is_for_tfrecord_only(channels):
    with pytest.raises(PipeModeDatasetException, match="TFRecord"):
        channels.dataset(record_format="RecordIO", max_corrupted_records_to_skip=1)


@pytest.mark.parametrize("name", ["tfrecord", "TEXTLINE", ""])
def test_the_record_format_is_compared_exactly(channels, name):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"^Invalid record format: "):
        channels.dataset(record_format=name)


def test_the_constructor_uses_up_no_epoch(channels, reader):
    dataset = channels.dataset()
    iter(dataset)
    assert not list(channels.state_dir.iterdir())


def test_sharding_by_file_is_disabled(channels, reader):
    off = tf.data.experimental.AutoShardPolicy.OFF
    assert channels.dataset().options().experimental_distribute.auto_shard_policy is off
    assert channels.dataset().batch(2).options().experimental_distribute.auto_shard_policy is off
