"""The training compiler's switch, as each SDK encodes it."""

import json

import pytest

from tidemill_runtime.compiler import announce, compiler_variables
from tidemill_runtime.environment import Environment

ENABLED = "sagemaker_training_compiler_enabled"
DEBUG = "sagemaker_training_compiler_debug_mode"


@pytest.fixture
def read(job):
    def read(hyperparameters):
        job.config("hyperparameters", hyperparameters)
        job.config("resourceconfig", {"current_host": "algo-1", "hosts": ["algo-1"]})
        job.config("inputdataconfig", {})
        return Environment.read({"SAGEMAKER_BASE_DIR": str(job.base)})

    return read


@pytest.mark.parametrize("text", ["true", '"true"', '"True"', "True"])
def test_every_encoding_of_true_switches_it_on(read, job, capfd, text):
    environment = read({ENABLED: text, DEBUG: json.dumps(False)})
    report = f"{job.base}/output/data/compiler"
    assert compiler_variables(environment) == {"TIDEMILL_COMPILER": "1", "TIDEMILL_COMPILER_REPORT": report}
    announce(environment)
    written = "Found configuration for Training Compiler\nConfiguring SM Training Compiler...\n"
    assert capfd.readouterr().out == written


def test_debug_mode_is_passed_to_the_script(read, capfd):
    environment = read({ENABLED: '"true"', DEBUG: '"true"'})
    assert compiler_variables(environment)["TIDEMILL_COMPILER_DEBUG"] == "1"
    announce(environment)
    assert capfd.readouterr().out.endswith("Training Compiler set to debug mode\n")


def test_a_job_without_the_compilers_package_says_so_in_a_line_that_status_shows(read, capfd, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    announce(read({ENABLED: "true"}))
    assert capfd.readouterr().err == ("training compiler: needs TensorFlow 2.12 or newer; the job runs without it\n")


@pytest.mark.parametrize(("sent", "handed_on"), [('"inf"', "inf"), ("0.1", "0.1"), ("0", "0")])
def test_the_share_that_compiling_may_cost_is_handed_on(read, sent, handed_on):
    variables = compiler_variables(read({ENABLED: "true", "sagemaker_training_compiler_max_cost": sent}))
    assert variables["TIDEMILL_COMPILER_MAX_COST"] == handed_on
    assert "TIDEMILL_COMPILER_MAX_COST" not in compiler_variables(read({ENABLED: "true"}))


@pytest.mark.parametrize("hyperparameters", [{}, {ENABLED: "false"}, {ENABLED: '"false"', DEBUG: "true"}])
def test_jobs_without_the_compiler_are_not_changed(read, capfd, hyperparameters):
    environment = read(hyperparameters)
    assert compiler_variables(environment) == {}
    announce(environment)
    assert capfd.readouterr().out == ""
