"""The REST surface: TF Serving's routes, and those of a SageMaker endpoint in front of them."""
