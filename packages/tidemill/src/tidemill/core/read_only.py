"""The policy of sessions that may only look: what the page calls, as far as it changes nothing and runs no code."""

from tidemill.core.policy_document import VERSION, read_policy

_VERBS = {
    "application-autoscaling": ("Describe*", "List*"),
    "cloudwatch": ("Describe*", "Get*", "List*"),
    # A query of log lines is a request that another one reads, but it changes nothing.
    "logs": ("Describe*", "FilterLogEvents", "Get*", "List*", "StartQuery", "StopQuery"),
    "s3": ("Get*", "List*"),
    "sagemaker": ("BatchDescribe*", "BatchGet*", "Describe*", "Get*", "List*", "QueryLineage", "Search"),
    "tidemill": ("Describe*", "Get*", "List*", "Read*", "Wait*"),
}
"""By service, the beginnings of the names of actions that read."""

READ_ONLY = read_policy(
    {
        "Version": VERSION,
        "Statement": {
            "Effect": "Allow",
            "Action": [f"{service}:{verb}" for service, verbs in _VERBS.items() for verb in verbs],
            "Resource": "*",
        },
    }
)
