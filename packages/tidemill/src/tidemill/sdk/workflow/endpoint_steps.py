"""Steps that create an endpoint's configuration and the endpoint."""

from typing import Unpack

from tidemill.sdk.arguments import in_order
from tidemill.sdk.variable import StepArguments
from tidemill.sdk.workflow.steps import RequestStep, StepOptions

__all__ = ["EndpointConfigStep", "EndpointStep"]


class EndpointConfigStep(RequestStep):
    """A step that creates the configuration of an endpoint.

    Args:
        name: Name of the step, unique in its pipeline.
        step_args: What ``create_endpoint_config`` of a `PipelineSession` returned.
        **options: `StepOptions`.

    Raises:
        ValueError: ``step_args`` are those of another step.
    """

    _type = "EndpointConfig"
    _operation = "create_endpoint_config"
    _name_member = ""  # the name is kept
    _shapes = ("DescribeEndpointConfigOutput",)
    _source = "session.create_endpoint_config()"

    @in_order(
        *("name", "step_args", "display_name", "description", "depends_on", "cache_config"),
        "retry_policies",
    )
    def __init__(self, name: str, step_args: StepArguments, **options: Unpack[StepOptions]) -> None:
        super().__init__(name, step_args, **options)


class EndpointStep(RequestStep):
    """A step that creates an endpoint, or updates it if it exists, and waits until it is in service.

    Args:
        name: Name of the step, unique in its pipeline.
        step_args: What ``create_endpoint`` of a `PipelineSession` returned.
        **options: `StepOptions`.

    Raises:
        ValueError: ``step_args`` are those of another step.
    """

    _type = "Endpoint"
    _operation = "create_endpoint"
    _name_member = ""  # the name is kept
    _shapes = ("DescribeEndpointOutput",)
    _source = "session.create_endpoint()"

    @in_order("name", "step_args", "display_name", "description", "depends_on", "cache_config")
    def __init__(self, name: str, step_args: StepArguments, **options: Unpack[StepOptions]) -> None:
        super().__init__(name, step_args, **options)
