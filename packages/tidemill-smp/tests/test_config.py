"""The parameters of smp.init: defaults, rules, and error messages."""

import json

import pytest

from smdistributed.modelparallel.backend.exceptions import SMPConfigurationError
from smdistributed.modelparallel.tensorflow.config import PARAMETERS_VARIABLE, read_config

pytestmark = pytest.mark.smp_first


def test_only_partitions_is_required():
    config = read_config({"partitions": 2})
    assert (config.partitions, config.microbatches, config.pipeline) == (2, 1, "interleaved")
    assert (config.optimize, config.placement_strategy) == ("memory", "cluster")
    assert config.auto_partition and config.measure_layers and config.contiguous and not config.horovod
    assert config.default_partition is None and config.active_microbatches is None
    assert config.hang_timeout_s == 300


def test_parameters_come_from_the_variable_of_the_job(monkeypatch):
    given = {"partitions": 2, "microbatches": 4, "pipeline": "simple", "horovod": True}
    monkeypatch.setenv(PARAMETERS_VARIABLE, json.dumps(given))
    assert read_config() == read_config(given)
    monkeypatch.setenv(PARAMETERS_VARIABLE, "[1]")
    with pytest.raises(SMPConfigurationError, match=r"SM_HP_MP_PARAMETERS is '\[1\]'; allowed is a JSON object"):
        read_config()
    monkeypatch.setenv(PARAMETERS_VARIABLE, "{")
    with pytest.raises(SMPConfigurationError, match="allowed is a JSON object"):
        read_config()
    monkeypatch.delenv(PARAMETERS_VARIABLE)
    with pytest.raises(SMPConfigurationError, match="SM_HP_MP_PARAMETERS is not set: call it with a dict"):
        read_config()


def test_booleans_may_be_numbers():
    config = read_config({"partitions": 2, "auto_partition": 0, "default_partition": 0, "contiguous": 1, "xla": 0})
    assert config.auto_partition is False and config.contiguous is True and config.xla is False


def test_unknown_keys_are_kept():
    config = read_config({"partitions": 1, "trace_device": "cpu", "deterministic_server": True, "fork": False})
    assert config.extras == {"trace_device": "cpu"} and config.deterministic_server


def test_recompute_is_a_bool_or_a_list_of_partitions():
    assert read_config({"partitions": 3, "recompute": True}).recompute == (0, 1, 2)
    assert read_config({"partitions": 3, "recompute": False}).recompute == ()
    assert read_config({"partitions": 3, "recompute": [2, 0]}).recompute == (0, 2)


REFUSED = [
    ({}, "'partitions' is missing"),
    ({"partitions": 0}, r"'partitions' is 0; allowed is an int >= 1"),
    ({"partitions": "2"}, r"'partitions' is '2'"),
    ({"partitions": True}, r"'partitions' is True"),
    ({"partitions": 2.0}, r"'partitions' is 2\.0"),
    ({"partitions": 2, "microbatches": 0}, "'microbatches' is 0; allowed is an int >= 1"),
    ({"partitions": 2, "active_microbatches": -1}, "'active_microbatches' is -1"),
    ({"partitions": 2, "pipeline": "gpipe"}, "'pipeline' is 'gpipe'; allowed is one of 'interleaved', 'simple'"),
    ({"partitions": 2, "optimize": "time"}, "'optimize' is 'time'; allowed is one of 'memory', 'speed'"),
    ({"partitions": 2, "placement_strategy": "DPT"}, "'placement_strategy' is 'DPT'; allowed is one of 'cluster'"),
    ({"partitions": 2, "auto_partition": "yes"}, "'auto_partition' is 'yes'; allowed is True or False"),
    ({"partitions": 2, "contiguous": 2}, "'contiguous' is 2"),
    ({"partitions": 2, "horovod": None}, "'horovod' is None"),
    ({"partitions": 2, "auto_partition": False}, "'default_partition' is missing: say which partition, 0 to 1"),
    ({"partitions": 2, "default_partition": 2}, "'default_partition' is 2; allowed is less than 'partitions'"),
    ({"partitions": 2, "default_partition": -1}, "'default_partition' is -1"),
    ({"partitions": 2, "memory_weight": 1.5}, "'memory_weight' is 1.5; allowed is a number from 0 to 1"),
    ({"partitions": 2, "ddp_port": 1234}, "'ddp_port' is 1234 but 'ddp' is not True"),
    ({"partitions": 2, "ddp_dist_backend": "nccl"}, "'ddp_dist_backend' is 'nccl' but 'ddp' is not True"),
    ({"partitions": 2, "shard_optimizer_state": True}, "'shard_optimizer_state' is True but 'ddp' is not True"),
    ({"partitions": 2, "horovod": True, "ddp": True}, "'horovod' and 'ddp' are both True"),
    ({"partitions": 2, "load_partition": True}, "'partition_file' is missing"),
    ({"partitions": 2, "recompute": [2]}, "'recompute' is \\[2\\]; allowed is True, False, or a list"),
    ({"partitions": 2, "recompute": "all"}, "'recompute' is 'all'"),
    ({"partitions": 2, "hang_timeout_s": 0}, "'hang_timeout_s' is 0; allowed is a number of seconds > 0"),
    ({"partitions": 2, "transport": "nccl"}, "'transport' is 'nccl'; allowed is one of 'auto'"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED, ids=[words[:40] for _, words in REFUSED])
def test_an_error_names_the_value_received_and_the_allowed_values(given, words):
    with pytest.raises(ValueError, match=words):
        read_config(given)


def test_a_path_is_not_a_configuration():
    with pytest.raises(SMPConfigurationError, match="allowed is a dict of parameters"):
        read_config("parameters.json")
