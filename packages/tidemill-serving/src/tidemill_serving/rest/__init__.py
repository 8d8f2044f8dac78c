"""The REST API: TF Serving's routes and those of a SageMaker endpoint."""
