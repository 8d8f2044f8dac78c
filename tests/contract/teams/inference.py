"""Inference code that is packed into the registered model."""

import json


def input_handler(data, context):
    return data.read().decode()


def output_handler(response, context):
    return json.dumps(response.json()), "application/json"
