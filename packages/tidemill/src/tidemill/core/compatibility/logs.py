"""Rows of CloudWatch Logs."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import Honored, Recorded, Refused, Rows, Unencrypted, honored, same

_NOT_MASKED = Recorded("nothing in the logs is masked")
_OWN_STREAM = Honored("in the groups of jobs and endpoints a name without a slash: theirs have one")
_ONE_OF_GROUPS = Honored("one of logGroupName, logGroupNames and logGroupIdentifiers; at most 50 groups")
_SECONDS = Honored("seconds since the epoch; a number with 12 or more digits is in milliseconds")

OPERATIONS: Mapping[str, Rows] = {
    "CreateLogGroup": {
        "logGroupName": Honored(),
        "kmsKeyId": Unencrypted(),
        "tags": Honored(),
        "logGroupClass": Refused("every group is of the class STANDARD; leave it out", harmless=("STANDARD",)),
        "deletionProtectionEnabled": Refused("groups have no protection; leave it out", harmless=(False,)),
    },
    "CreateLogStream": {"logGroupName": Honored(), "logStreamName": _OWN_STREAM},
    "PutLogEvents": {
        "logGroupName": Honored(),
        "logStreamName": Honored("a stream that a client has created"),
        "logEvents": Honored("in the order of time, at most 10,000 and 1 MiB, within 24 hours"),
        "logEvents[].timestamp": Honored(
            "events older than 14 days or the retention, or more than 2 hours ahead, are rejected"
        ),
        "logEvents[].message": Honored(),
        "sequenceToken": Recorded("has no effect on CloudWatch either"),
        "entity": Recorded("there is no Application Signals that could show it"),
    },
    "DeleteLogGroup": {"logGroupName": Honored("refused while a job or an endpoint writes one of its streams")},
    "DeleteLogStream": {
        "logGroupName": Honored(),
        "logStreamName": Honored("refused while a job or an endpoint writes it"),
    },
    "PutRetentionPolicy": {
        "logGroupName": Honored("also a group of jobs: the streams of ended jobs are removed"),
        "retentionInDays": Honored("older events are not shown; files are removed within hours"),
    },
    "DeleteRetentionPolicy": {"logGroupName": Honored()},
    "TagResource": {"resourceArn": Honored("a log group"), "tags": Honored()},
    "UntagResource": {"resourceArn": Honored("a log group"), "tagKeys": Honored()},
    "ListTagsForResource": {"resourceArn": Honored("a log group")},
    "DescribeLogStreams": {
        "logGroupName": Honored("either it or logGroupIdentifier"),
        **honored("logGroupIdentifier", "logStreamNamePrefix", "orderBy", "descending"),
        "nextToken": Refused("all streams come in one reply, which has no token; ask again without one"),
        "limit": Recorded("all streams come in one reply: AWS's SDKs loop forever on a reply that has a next token"),
    },
    "GetLogEvents": {
        "logGroupName": Honored("either it or logGroupIdentifier"),
        **honored("logGroupIdentifier", "logStreamName", "startTime", "endTime", "nextToken", "limit"),
        **honored("startFromHead"),
        "unmask": _NOT_MASKED,
    },
    "FilterLogEvents": {
        "logGroupName": Honored("either it or logGroupIdentifier"),
        "logGroupIdentifier": Honored(),
        "logStreamNames": Honored("not together with logStreamNamePrefix"),
        **honored("logStreamNamePrefix", "startTime", "endTime"),
        "filterPattern": Honored("terms, with quotes, `?` and `-`; other forms of patterns are refused"),
        **honored("nextToken", "limit"),
        "startFromHead": Honored("false is refused: events come in the order of time"),
        "interleaved": Recorded("CloudWatch interleaves events regardless of it"),
        "unmask": _NOT_MASKED,
    },
    "DescribeLogGroups": {
        "accountIdentifiers": Refused("there is one account; leave it out"),
        **honored("logGroupNamePrefix", "logGroupNamePattern", "nextToken", "limit"),
        "includeLinkedAccounts": Refused("there is one account; leave it out"),
        "logGroupClass": Honored("every group is of the class STANDARD"),
        "logGroupIdentifiers": Honored(),
    },
    "StartQuery": {
        "queryLanguage": Refused("queries are in the language of Logs Insights; leave it out", harmless=("CWLI",)),
        **same(_ONE_OF_GROUPS, "logGroupName", "logGroupNames", "logGroupIdentifiers"),
        "startTime": _SECONDS,
        "endTime": _SECONDS,
        "queryString": Honored(
            "fields, filter, parse, sort, stats, limit and display; other commands and functions are refused by name"
        ),
        "limit": Honored("10,000 without it; a result above 8 MiB is cut, which its statistics say"),
    },
    "GetQueryResults": {
        "queryId": Honored("queries are in memory: a restart forgets them"),
        "nextToken": Honored(),
        "maxItems": Honored("without it or with 0, all results come in one reply"),
    },
    "StopQuery": {"queryId": Honored()},
    "DescribeQueries": {
        **honored("logGroupName", "status", "maxResults", "nextToken"),
        "queryLanguage": Honored("every query is in CWLI"),
    },
}
