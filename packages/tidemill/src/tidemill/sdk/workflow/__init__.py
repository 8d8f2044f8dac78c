"""Pipelines in the form of SageMaker's SDK: parameters, steps and conditions, written as a definition in JSON."""
