"""Only `sagemaker_containers.beta.framework`."""
