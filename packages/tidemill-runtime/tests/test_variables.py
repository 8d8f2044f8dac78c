"""SM_*: every row of the published list."""

import json
from pathlib import Path

import pytest

from tidemill_runtime.devices import Devices
from tidemill_runtime.environment import Environment
from tidemill_runtime.errors import ConfigurationError
from tidemill_runtime.old_s3_client import old_s3_client_variables
from tidemill_runtime.variables import encode, script_variables, sm_variables

DEVICES = Devices(num_cpus=2, num_gpus=0, num_neurons=0)
GROUP = {"instance_group_name": "homogeneousCluster", "instance_type": "ml.m5.xlarge", "hosts": ["algo-1", "algo-2"]}
RESOURCES = {
    "current_host": "algo-2",
    "current_instance_type": "ml.m5.xlarge",
    "current_group_name": "homogeneousCluster",
    "hosts": ["algo-1", "algo-2"],
    "network_interface_name": "eth1",
    "instance_groups": [GROUP],
}
CHANNEL = {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}


@pytest.fixture
def read(job):
    def read(hyperparameters=None, *, resources=None, channels=(), **variables):
        job.config("hyperparameters", hyperparameters or {})
        job.config("resourceconfig", RESOURCES if resources is None else resources)
        job.config("inputdataconfig", dict.fromkeys(channels, CHANNEL))
        return Environment.read({"SAGEMAKER_BASE_DIR": str(job.base), **variables}, devices=DEVICES)

    return read


def test_the_list_is_complete(read, job):
    base = str(job.base)
    raw = {
        "epochs": "3",
        "batch-size": "64",
        "flag": "true",
        "none": "null",
        "lst": '[1, 2, "a b"]',
        "map": '{"b": 1, "a": "x y"}',
        "name": '"J\\u00fcrgen"',
        "sagemaker_program": '"train.py"',
        "sagemaker_submit_directory": '"s3://b/sourcedir.tar.gz"',
        "sagemaker_job_name": '"job-1"',
        "sagemaker_region": '"eu-west-1"',
        "sagemaker_container_log_level": "10",
        "sagemaker_mpi_enabled": "true",
    }
    variables = sm_variables(read(raw, channels=["training", "Test-Set"]))
    environment = json.loads(variables.pop("SM_TRAINING_ENV"))
    hps = (
        '{"batch-size":64,"epochs":3,"flag":true,"lst":[1,2,"a b"],"map":{"a":"x y","b":1},'
        '"name":"J\\u00fcrgen","none":null}'
    )
    arguments = [
        "--batch-size",
        "64",
        "--epochs",
        "3",
        "--flag",
        "True",
        "--lst",
        "[1, 2, 'a b']",
        "--map",
        "a=x y,b=1",
    ]
    arguments += ["--name", "Jürgen", "--none", ""]
    assert variables == {
        "SM_HOSTS": '["algo-1","algo-2"]',
        "SM_CURRENT_HOST": "algo-2",
        "SM_NETWORK_INTERFACE_NAME": "eth1",
        "SM_CURRENT_INSTANCE_TYPE": "ml.m5.xlarge",
        "SM_CURRENT_INSTANCE_GROUP": "homogeneousCluster",
        "SM_CURRENT_INSTANCE_GROUP_HOSTS": '["algo-1","algo-2"]',
        "SM_INSTANCE_GROUPS": '["homogeneousCluster"]',
        "SM_INSTANCE_GROUPS_DICT": encode({"homogeneousCluster": GROUP}),
        "SM_DISTRIBUTION_INSTANCE_GROUPS": '["homogeneousCluster"]',
        "SM_IS_HETERO": "false",
        "SM_HPS": hps,
        "SM_HP_EPOCHS": "3",
        "SM_HP_BATCH-SIZE": "64",
        "SM_HP_FLAG": "true",
        "SM_HP_NONE": "",
        "SM_HP_LST": '[1,2,"a b"]',
        "SM_HP_MAP": '{"a":"x y","b":1}',
        "SM_HP_NAME": "Jürgen",
        "SM_USER_ARGS": encode(arguments),
        "SM_USER_ENTRY_POINT": "train.py",
        "SM_MODULE_NAME": "train",
        "SM_MODULE_DIR": "s3://b/sourcedir.tar.gz",
        "SM_FRAMEWORK_PARAMS": '{"sagemaker_mpi_enabled":true}',
        "SM_FRAMEWORK_MODULE": "sagemaker_tensorflow_container.training:main",
        "SM_RESOURCE_CONFIG": encode(RESOURCES),
        "SM_INPUT_DATA_CONFIG": encode({"training": CHANNEL, "Test-Set": CHANNEL}),
        "SM_CHANNELS": '["Test-Set","training"]',
        "SM_CHANNEL_TRAINING": f"{base}/input/data/training",
        "SM_CHANNEL_TEST-SET": f"{base}/input/data/Test-Set",
        "SM_INPUT_DIR": f"{base}/input",
        "SM_INPUT_CONFIG_DIR": f"{base}/input/config",
        "SM_OUTPUT_DIR": f"{base}/output",
        "SM_OUTPUT_DATA_DIR": f"{base}/output/data",
        "SM_OUTPUT_INTERMEDIATE_DIR": f"{base}/output/intermediate",
        "SM_MODEL_DIR": f"{base}/model",
        "SM_NUM_CPUS": "2",
        "SM_NUM_GPUS": "0",
        "SM_NUM_NEURONS": "0",
        "SM_LOG_LEVEL": "10",
    }
    assert environment["job_name"] == "job-1"
    assert environment["is_master"] is False
    assert environment["master_hostname"] == "algo-1"
    assert environment["distribution_hosts"] == ["algo-1", "algo-2"]
    assert environment["topology"] == []
    assert environment["additional_framework_parameters"] == {"sagemaker_mpi_enabled": True}
    assert environment["hyperparameters"] == json.loads(hps)


def test_without_configuration_there_are_defaults(read):
    variables = sm_variables(read(resources={}))
    expected = {
        "SM_NETWORK_INTERFACE_NAME": "eth0",
        "SM_CURRENT_INSTANCE_TYPE": "local",
        "SM_CURRENT_INSTANCE_GROUP": "",
        "SM_CURRENT_INSTANCE_GROUP_HOSTS": "[]",
        "SM_DISTRIBUTION_INSTANCE_GROUPS": "[]",
        "SM_LOG_LEVEL": "20",
        "SM_CHANNELS": "[]",
        "SM_HPS": "{}",
    }
    assert {name: variables[name] for name in expected} == expected
    assert variables["SM_MODULE_DIR"].endswith("/code")
    assert "SM_TOPOLOGY" not in variables


def test_topology_is_in_the_variables_if_the_platform_has_one(read):
    assert sm_variables(read(resources={**RESOURCES, "topology": {"a": 1}}))["SM_TOPOLOGY"] == '{"a":1}'


def test_two_groups_make_a_heterogeneous_cluster_and_distribution_groups_can_be_named(read):
    other = {"instance_group_name": "data", "instance_type": "ml.c5.xlarge", "hosts": ["algo-3"]}
    resources = {**RESOURCES, "instance_groups": [GROUP, other], "hosts": ["algo-1", "algo-2", "algo-3"]}
    environment = read({"sagemaker_distribution_instance_groups": '["data"]'}, resources=resources)
    variables = sm_variables(environment)
    assert variables["SM_IS_HETERO"] == "true"
    assert variables["SM_DISTRIBUTION_INSTANCE_GROUPS"] == '["data"]'
    assert environment.distribution_hosts == ["algo-3"]


def test_the_group_has_two_key_names(read):
    renamed = {key: value for key, value in RESOURCES.items() if key != "current_group_name"}
    environment = read(resources={**renamed, "current_instance_group": "homogeneousCluster"})
    assert environment.current_instance_group == "homogeneousCluster"


def test_the_container_variable_wins_over_the_hyperparameter(read):
    hyperparameters = {"sagemaker_program": '"a.py"'}
    assert read(hyperparameters, SAGEMAKER_PROGRAM="b.py").entry_point == "b.py"
    assert read(hyperparameters).entry_point == "a.py"


def test_a_name_with_an_equals_sign_is_an_argument_but_not_a_variable(read):
    variables = sm_variables(read({"a=b": "1"}))
    assert variables["SM_HPS"] == '{"a=b":1}'
    assert not any("=" in name for name in variables)


def test_a_nul_character_is_refused_by_name(read):
    with pytest.raises(ConfigurationError, match="NUL"):
        sm_variables(read({"a": '"x\\u0000y"'}))


def test_a_config_file_that_is_not_an_object_is_named(read, job):
    environment = {"SAGEMAKER_BASE_DIR": str(job.base)}
    job.config("hyperparameters", [1])
    with pytest.raises(ConfigurationError, match=r"hyperparameters\.json holds list"):
        Environment.read(environment, devices=DEVICES)


def test_without_opt_ml_the_error_names_the_variable(tmp_path):
    with pytest.raises(ConfigurationError, match="SAGEMAKER_BASE_DIR"):
        Environment.read({"SAGEMAKER_BASE_DIR": str(tmp_path / "no")}, devices=DEVICES)


def test_the_script_inherits_the_containers_variables_but_not_private_ones(read):
    environment = read({"sagemaker_job_name": '"job-1"', "sagemaker_region": '"eu-west-1"'})
    container = {"MINE": "1", "PATH": "/usr/bin", "PYTHONPATH": "/mine", "TIDEMILL_CONTROL_FD": "3"}
    variables = script_variables(environment, container, prefixes=["/env"])
    code = str(environment.layout.code)
    assert variables["MINE"] == "1"
    assert variables["PATH"] == "/env/bin:/usr/bin"
    assert variables["PYTHONPATH"] == f"{code}:/mine"
    assert variables["SAGEMAKER_JOB_NAME"] == "job-1"
    assert variables["SAGEMAKER_REGION"] == variables["S3_REGION"] == "eu-west-1"
    assert variables["CURRENT_HOST"] == "algo-2"
    assert variables["TF_CPP_MIN_LOG_LEVEL"] == variables["S3_USE_HTTPS"] == "1"
    assert "TIDEMILL_CONTROL_FD" not in variables


def installed(monkeypatch, *names):
    """Let the runtime find only these of the packages it asks for."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name in names or None)


def test_the_s3_client_inside_old_tensorflow_is_directed_to_the_service(read, monkeypatch):
    container = {"AWS_ENDPOINT_URL": "http://127.0.0.1:8123"}
    installed(monkeypatch, "tidemill_tensorflow")
    assert "S3_ENDPOINT" not in script_variables(read(), container, prefixes=[]), "s3:// is tidemill-tensorflow's"
    installed(monkeypatch)
    variables = script_variables(read(), container, prefixes=[])
    assert (variables["S3_ENDPOINT"], variables["S3_USE_HTTPS"]) == ("127.0.0.1:8123", "0")
    variables = script_variables(read(), container | {"S3_ENDPOINT": "mine:1", "S3_USE_HTTPS": "1"}, prefixes=[])
    assert (variables["S3_ENDPOINT"], variables["S3_USE_HTTPS"]) == ("mine:1", "1")
    assert "S3_ENDPOINT" not in script_variables(read(), {}, prefixes=[])


def test_the_s3_client_of_1_15_is_repaired_by_a_library_that_is_loaded_before_those_of_the_request(
    read, monkeypatch, capfd
):
    installed(monkeypatch)
    assert "LD_PRELOAD" not in script_variables(read(), {}, prefixes=[]), "2.4 gives its files unique names"
    installed(monkeypatch, "tensorflow_core")
    alone = script_variables(read(), {}, prefixes=[])["LD_PRELOAD"]
    assert Path(alone).name == "libtidemill_temporary_files.so"
    both = script_variables(read(), {"LD_PRELOAD": "/lib/mine.so"}, prefixes=[])["LD_PRELOAD"]
    assert both == f"{alone}:/lib/mine.so"
    monkeypatch.setenv("CXX", "none")
    monkeypatch.setenv("TIDEMILL_NATIVE_DIR", "/nonexistent")
    assert "LD_PRELOAD" not in script_variables(read(), {}, prefixes=[])
    assert "tidemill: s3_client.unrepaired " in capfd.readouterr().err


def test_the_command_of_a_processing_job_gets_the_containers_variables_only(job):
    (job.base / "config").mkdir()
    (job.base / "config/processingjobconfig.json").write_text("{}")
    (job.base / "config/resourceconfig.json").write_text(json.dumps({"current_host": "algo-1", "hosts": ["algo-1"]}))
    environment = Environment.read({"SAGEMAKER_BASE_DIR": str(job.base)}, devices=DEVICES)
    assert environment.layout.config == job.base / "config"
    assert environment.hosts == ["algo-1"]
    variables = script_variables(environment, {"MINE": "1"}, prefixes=[])
    assert variables["MINE"] == "1"
    assert not {name for name in variables if name.startswith("SM_") or name == "CURRENT_HOST"}


def test_a_config_file_that_is_not_json_is_named(job):
    job.config("resourceconfig", {})
    (job.base / "input/config/resourceconfig.json").write_text("{torn")
    with pytest.raises(ConfigurationError, match=r"resourceconfig\.json is not JSON: Expecting"):
        Environment.read({"SAGEMAKER_BASE_DIR": str(job.base)}, devices=DEVICES)


@pytest.mark.parametrize(
    ("container", "wanted"),
    [
        ({}, {}),
        ({"AWS_ENDPOINT_URL": ""}, {}),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:8123"}, {"S3_ENDPOINT": "127.0.0.1:8123", "S3_USE_HTTPS": "0"}),
        ({"AWS_ENDPOINT_URL": "https://tide:1/path"}, {"S3_ENDPOINT": "tide:1", "S3_USE_HTTPS": "1"}),
        (
            {"AWS_ENDPOINT_URL": "http://tide:1", "S3_ENDPOINT": "mine:2", "S3_USE_HTTPS": "1"},
            {"S3_ENDPOINT": "mine:2", "S3_USE_HTTPS": "1"},
        ),
    ],
)
def test_the_s3_client_inside_old_tensorflows_is_led_to_the_service_unless_the_container_leads_it(container, wanted):
    assert old_s3_client_variables(container) == wanted
