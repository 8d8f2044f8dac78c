"""A job on an image that version 2 of AWS's SDK does not know: attached, and deployed on the image that is named."""

import sagemaker
from sagemaker.tensorflow import TensorFlow

IMAGE = "763104351884.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py311"
session = sagemaker.Session()
estimator = TensorFlow(
    entry_point="halves.py",
    image_uri=IMAGE,
    role=sagemaker.get_execution_role(session),
    instance_count=1,
    instance_type="ml.m5.large",
    model_dir=False,
    sagemaker_session=session,
)
estimator.fit(logs=False)
attached = TensorFlow.attach(estimator.latest_training_job.name, sagemaker_session=session)
print("ATTACHED", attached.framework_version, attached.py_version)
try:
    attached.deploy(initial_instance_count=1, instance_type="ml.m5.large")
except ValueError as error:
    print("REFUSED", str(error).partition(".")[0])
predictor = attached.deploy(initial_instance_count=1, instance_type="ml.m5.large", image_uri=IMAGE)
print("PREDICTED", predictor.predict({"instances": [1.0, 5.0]}))
predictor.delete_endpoint()
