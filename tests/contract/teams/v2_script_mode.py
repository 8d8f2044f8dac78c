"""Train the same classifier in script mode with TensorFlow 1.x and 2.x on parameter servers; deploy and ask both."""

import io
import json
import os
import tempfile

import boto3
import numpy as np
import sagemaker
from sagemaker.tensorflow import TensorFlow

session = sagemaker.Session()
role = sagemaker.get_execution_role(session)

# Pictures in the form of MNIST: ten patterns with noise.
generator = np.random.default_rng(1)
patterns = generator.random((10, 28, 28)) > 0.5
with tempfile.TemporaryDirectory() as directory:
    for kind, rows in (("train", 1000), ("eval", 200)):
        labels = generator.integers(0, 10, rows)
        pictures = (0.7 * patterns[labels] + 0.3 * generator.random((rows, 28, 28))).astype("float32")
        np.save(os.path.join(directory, f"{kind}_data.npy"), pictures.reshape(rows, -1))
        np.save(os.path.join(directory, f"{kind}_labels.npy"), labels)
    training_data_uri = session.upload_data(directory, key_prefix="script-mode/mnist")

common = {
    "role": role,
    "instance_count": 2,
    "instance_type": "ml.p3.2xlarge",
    "distribution": {"parameter_server": {"enabled": True}},
    "disable_profiler": True,
}
estimator = TensorFlow(entry_point="mnist_1.py", framework_version="1.15.2", py_version="py37", **common)
estimator.fit(training_data_uri, logs=False)
estimator2 = TensorFlow(entry_point="mnist_2.py", framework_version="2.19", py_version="py312", **common)
estimator2.fit(training_data_uri, logs=False)
print("TRAINED", [each.latest_training_job.describe()["TrainingJobStatus"] for each in (estimator, estimator2)])

predictor = estimator.deploy(initial_instance_count=1, instance_type="ml.p2.xlarge")
predictor2 = estimator2.deploy(initial_instance_count=1, instance_type="ml.p3.2xlarge")


def load(name):
    bucket, _, prefix = training_data_uri.removeprefix("s3://").partition("/")
    body = boto3.client("s3").get_object(Bucket=bucket, Key=f"{prefix}/{name}.npy")["Body"]
    return np.load(io.BytesIO(body.read()))


data, labels = load("train_data")[:50], load("train_labels")[:50]
predicted = [each["classes"] for each in predictor.predict(data)["predictions"]]
predicted2 = np.argmax(predictor2.predict(data)["predictions"], axis=1)
print("PREDICTED", *(f"{np.mean(each == labels):.0%}" for each in (predicted, predicted2)))

# The same endpoints by plain requests.
runtime = boto3.client("sagemaker-runtime")
for number, each in enumerate((predictor, predictor2), start=1):
    reply = runtime.invoke_endpoint(
        EndpointName=each.endpoint_name,
        ContentType="application/json",
        Body=json.dumps({"instances": data[:2].tolist()}),
    )
    print("INVOKED", len(json.load(reply["Body"])["predictions"]))
    each.delete_model()
    each.delete_endpoint()
    waiter = session.sagemaker_client.get_waiter("endpoint_deleted")
    waiter.wait(EndpointName=each.endpoint_name, WaiterConfig={"Delay": 1, "MaxAttempts": 300})
    print("DELETED", number)
