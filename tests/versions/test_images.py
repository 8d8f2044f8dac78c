"""What scripts import because SageMaker's TensorFlow images have it."""

from typing import Any

import pytest
from versions_jobs import image, logged

from tidemill.core.features import versions_with
from tidemill.core.frameworks import FRAMEWORKS

TRACKED = """
    import argparse, json, os
    import numpy as np
    import tensorflow as tf
    from smexperiments.tracker import Tracker

    v1 = tf.compat.v1
    v1.disable_eager_execution()

    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int)
    steps = parser.parse_known_args()[0].steps

    images, labels = np.random.RandomState(0).rand(64, 784).astype("float32"), np.arange(64) % 10
    x, y = v1.placeholder(tf.float32, [None, 784]), v1.placeholder(tf.int64, [None])
    weights = v1.get_variable("weights", [784, 10])
    loss = v1.losses.sparse_softmax_cross_entropy(y, tf.matmul(x, weights))
    step = v1.train.AdamOptimizer(0.01).minimize(loss)
    with Tracker.load() as tracker, v1.Session() as session:
        session.run(v1.global_variables_initializer())
        tracker.log_parameters({"steps": steps, "optimizer": "adam"})
        for _ in range(steps):
            value, _ = session.run([loss, step], {x: images, y: labels})
        tracker.log_output("model", os.environ["SM_MODULE_DIR"])
"""

IMPORTED = """
    import importlib, json, os, sys
    import tensorflow as tf
    import sagemaker_containers
    import smdebug.tensorflow as smd
    from sagemaker_containers.beta.framework import env as earlier, training_env
    from sagemaker_training import environment

    names = ("boto3 cv2 h5py imageio matplotlib.pyplot numpy pandas PIL psutil yaml requests scipy seaborn sklearn"
             " smexperiments.experiment smexperiments.tracker tensorboard tqdm").split()
    for name in names + (["keras"] if tf.__version__ < "2" else []):
        importlib.import_module(name)

    here = environment.Environment()
    assert (here.hosts, here.current_host, here.is_master) == (["algo-1"], "algo-1", True)
    assert dict(here)["model_dir"] == here["model_dir"] == environment.model_dir == "/opt/ml/model"
    assert here.hyperparameters == environment.read_hyperparameters() == {"depth": 3}
    assert here.to_cmd_args() == sys.argv[1:] and here.to_env_vars()["SM_HP_DEPTH"] == "3"
    for other in (sagemaker_containers.training_env(), training_env(), earlier.Environment()):
        assert dict(other) == dict(here) == json.loads(os.environ["SM_TRAINING_ENV"])
    try:
        from sagemaker_training import entry_point
    except ImportError as error:
        print("REFUSED", error, flush=True)

    hook = smd.KerasHook("/tmp/tensors", save_config=smd.SaveConfig(save_interval=10), include_collections=["losses"])
    hook.get_collection("custom").include("relu")
    assert smd.get_hook() is hook
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
    model.compile(hook.wrap_optimizer(tf.keras.optimizers.SGD()), "mse")
    data = tf.zeros([8, 2]), tf.zeros([8, 1])
    model.fit(*data, steps_per_epoch=1, callbacks=[hook], verbose=0)
    hook.save_scalar("accuracy", 0.5, sm_metric=True)
    print("IMPORTED", tf.__version__, flush=True)
"""

VERSIONS = [
    version if version == "1.15" else pytest.param(version, marks=pytest.mark.matrix)
    for version in versions_with("packages")
]


@pytest.mark.feature("packages")
@pytest.mark.parametrize("version", VERSIONS)
def test_what_images_of_sagemaker_have_is_there(jobs: Any, build_environment: Any, version: str) -> None:
    build_environment(version)
    job = jobs.run(IMPORTED, HyperParameters={"depth": "3"}, **image(version))
    lines = jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", (job["FailureReason"], lines)
    assert logged(lines, "IMPORTED ") == FRAMEWORKS[version].release
    assert "put sagemaker-training into requirements.txt" in logged(lines, "REFUSED ")
    told = [line for line in lines if line.startswith("tidemill: smdebug is a stand-in here: ")]
    assert len(told) == 1
    assert "KerasHook saves no tensors, and no rules run" in told[0]
    assert "smdebug: accuracy=0.5" in lines


@pytest.mark.parametrize("version", VERSIONS)
def test_a_script_of_sessions_tracks_itself_by_smexperiments(jobs: Any, build_environment: Any, version: str) -> None:
    build_environment(version)
    experiment = f"tracked-{version.replace('.', '-')}"
    jobs.sagemaker.create_experiment(ExperimentName=experiment)
    config = {"ExperimentName": experiment}
    job = jobs.run(TRACKED, HyperParameters={"steps": "20"}, ExperimentConfig=config, **image(version))
    name = job["TrainingJobName"]
    assert job["TrainingJobStatus"] == "Completed", (job["FailureReason"], jobs.log(name))
    component = jobs.sagemaker.describe_trial_component(TrialComponentName=f"{name}-aws-training-job")
    assert component["Parameters"]["optimizer"] == {"StringValue": "adam"}
    assert component["Parameters"]["steps"] == {"NumberValue": 20.0}
    assert component["OutputArtifacts"]["model"]["Value"].startswith("s3://")
