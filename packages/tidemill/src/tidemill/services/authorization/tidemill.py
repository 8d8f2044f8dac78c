"""Permissions of tidemill's own operations.

Where AWS has a permission to see a resource, that one is needed, so that a policy written for AWS decides here, too.
What is about the machine needs ``tidemill:OPERATION`` on everything.
"""

from collections.abc import Mapping

from tidemill.control.jobs import KINDS
from tidemill.control.resources import TITLES
from tidemill.core.names import sagemaker_arn
from tidemill.core.policy import Permission
from tidemill.services.authorization.logs import LOGS
from tidemill.services.authorization.rule import Members, Rule, by_name, everything, nothing
from tidemill.services.authorization.s3 import S3
from tidemill.services.authorization.sagemaker import SAGEMAKER


def _described(request: Members, region: str) -> tuple[Permission, ...]:
    """Return the permission to describe the job or endpoint that a request names."""
    kind = request["Kind"]
    return (Permission(f"sagemaker:Describe{TITLES[kind]}", sagemaker_arn(kind, request["Name"], region=region)),)


def _list_jobs(request: Members, region: str) -> tuple[Permission, ...]:
    return SAGEMAKER[f"List{KINDS[request['Kind']].resource}s"]({}, region)


def _describe_job(request: Members, region: str) -> tuple[Permission, ...]:
    resource = KINDS[request["Kind"]].resource
    return SAGEMAKER[f"Describe{resource}"]({f"{resource}Name": request["Name"]}, region)


def _read_log(request: Members, region: str) -> tuple[Permission, ...]:
    return LOGS["GetLogEvents"]({"logGroupName": request["LogGroup"], "logStreamName": request["LogStream"]}, region)


TIDEMILL: Mapping[str, Rule] = {
    # A session of the page has the rights of the key that asks for it, and no others.
    **dict.fromkeys(("CreatePageToken", "DeletePageSessions"), nothing),
    "PresignDownload": S3["GetObject"],
    "GetMetricPoints": SAGEMAKER["DescribeTrainingJob"],
    "GetInstanceSamples": _described,
    # Event files in S3 are shown only to who may read these objects.
    **dict.fromkeys(("ListScalars", "GetScalars"), SAGEMAKER["DescribeTrainingJob"]),
    # Every key may ask what runs; it learns of what it may describe, as from the next one.
    "ListRunningInstances": nothing,
    # Every key may wait; it learns of what it may describe (`tidemill.services.page.changes`).
    "WaitForChanges": nothing,
    "ListArchive": S3["GetObject"],
    "ReadArchiveMember": S3["GetObject"],
    **by_name("tidemill", everything, "DescribeMachine", "ListEnvironments", "RunDoctor"),
    "DescribeEndpointInstances": SAGEMAKER["DescribeEndpoint"],
    "DescribeServedModels": SAGEMAKER["DescribeEndpoint"],
    # The service refuses everybody but its owner, so that no policy can allow these (`services.page.ownership`).
    **dict.fromkeys(("CreateMetricsToken", "ListMetricsTokens", "DeleteMetricsToken"), nothing),
    **dict.fromkeys(("ListWebhooks", "TestWebhook"), nothing),
    # Limited to the jobs that the caller may describe.
    "ListJobs": _list_jobs,
    "DescribeJob": _describe_job,
    "GetLogLines": _read_log,
    "SearchLogLines": _read_log,
}
