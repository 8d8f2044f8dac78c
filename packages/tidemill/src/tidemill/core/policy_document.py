"""Reads IAM policy documents from the settings (TOML or JSON).

Everything that is accepted is honored. Members that have no effect here are errors. So are, in a Deny statement,
actions that no request needs and conditions on keys that are not known: it would deny nothing.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tidemill.core.compatibility import OPERATIONS
from tidemill.core.condition_keys import check_key, is_known
from tidemill.core.conditions import Condition
from tidemill.core.globs import placeholders_of
from tidemill.core.job_scope import PLACEHOLDERS
from tidemill.core.policy import ActionPattern, IamPolicy, PolicyEffect, ResourcePattern, Statement

VERSION = "2012-10-17"
_DEEPEST = 32
_TOO_DEEP = f"it is nested more than {_DEEPEST} levels deep; a policy needs seven"
_ACTION = re.compile(r"\*|[A-Za-z0-9-]+:[A-Za-z0-9*?]+")
_MEMBERS = ("Version", "Statement", "KeepPublished")
_STATEMENT_MEMBERS = ("Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Condition")

_S3 = (
    *("AbortMultipartUpload", "CreateBucket", "DeleteBucket", "DeleteBucketPolicy", "DeleteObject"),
    *("DeleteObjectTagging", "DeleteObjectVersion", "DeleteObjectVersionTagging"),
    *("GetAccelerateConfiguration", "GetBucketAcl"),
    *("GetBucketCORS", "GetBucketLocation", "GetBucketLogging", "GetBucketNotification"),
    *("GetBucketObjectLockConfiguration", "GetBucketOwnershipControls", "GetBucketPolicy", "GetBucketPolicyStatus"),
    *("GetBucketPublicAccessBlock", "GetBucketRequestPayment", "GetBucketTagging", "GetBucketVersioning"),
    *("GetBucketWebsite", "GetEncryptionConfiguration", "GetLifecycleConfiguration", "GetObject", "GetObjectAcl"),
    *("GetObjectAttributes", "GetObjectTagging", "GetObjectVersion", "GetObjectVersionAcl"),
    *("GetObjectVersionAttributes", "GetObjectVersionTagging", "GetReplicationConfiguration"),
    *("ListAllMyBuckets", "ListBucket", "ListBucketMultipartUploads", "ListBucketVersions"),
    *("ListMultipartUploadParts", "PutBucketPolicy", "PutEncryptionConfiguration"),
    *("PutObject", "PutObjectAcl", "PutObjectTagging", "PutObjectVersionTagging"),
)
_VARIABLES = (
    f"there are {', '.join(f'${{{name}}}' for name in sorted(PLACEHOLDERS))}, and condition keys such as"
    " ${aws:username}"
)

_WITHOUT_ACTION = frozenset({"sagemaker:InvokeEndpointWithResponseStream", "sts:GetSessionToken"})
"""The first needs the action of InvokeEndpoint, the second none."""
_SERVICES = {"sagemaker-metrics": "sagemaker", "sagemaker-runtime": "sagemaker"}
"""By botocore's name of a service, the beginning of its actions if that differs."""

ACTIONS = frozenset(
    {
        *(f"s3:{name}" for name in _S3),
        *("iam:PassRole", "tidemill:DescribeMachine", "tidemill:ListEnvironments", "tidemill:RunDoctor"),
        *(
            f"{_SERVICES.get(service, service)}:{name}"
            for service, names in OPERATIONS.items()
            if service != "s3"  # whose actions are not named as its operations
            for name in names
        ),
    }
    - _WITHOUT_ACTION
)
"""The IAM actions that requests to this service may need: ``service:Name``, spelled as IAM spells them."""


def load_document(text: str) -> Any:
    """Parse the JSON of a policy that a client sends.

    Args:
        text: The JSON.

    Raises:
        ValueError: It is no JSON, is nested too deeply, or names a member twice, so that one of the two would be lost.
    """
    try:
        document = json.loads(text, object_pairs_hook=_table)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from error
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    level: list[Any] = [document]
    depth = 0
    while level:
        depth += 1
        if depth > _DEEPEST:
            raise ValueError(_TOO_DEEP)
        level = [inner for each in level for inner in _inside(each)]
    return document


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise ValueError(f"{twice!r} occurs twice in one table, so one of the two would be lost; write it once")
    return found


def read_policy(document: object) -> IamPolicy:
    """Read a policy document.

    Args:
        document: A table with ``Statement``, a table or a list of tables, and optionally ``Version``. Statements have
            ``Effect``, ``Action`` or ``NotAction``, ``Resource`` or ``NotResource``, and optionally ``Condition`` and
            ``Sid``. Actions and resources are strings or lists of strings. ``KeepPublished``, optional, is not a member
            of IAM's; see `IamPolicy.keeps_published`.

    Raises:
        ValueError: Names the statement, the member, the value received and the allowed values.
    """
    members = read_table(document, "a policy", _MEMBERS)
    version = members.get("Version", VERSION)
    if version != VERSION:
        raise ValueError(f"Version is {version!r}; only {VERSION!r} is allowed, and it may be left out")
    if "Statement" not in members:
        raise ValueError("Statement is missing; a policy without statements is written Statement = []")
    found = members["Statement"]
    statements = found if isinstance(found, list) else [found]
    keeps = members.get("KeepPublished", False)
    if not isinstance(keeps, bool):
        raise ValueError(f"KeepPublished is {keeps!r}; allowed are true and false")
    return IamPolicy(
        tuple(read_statement(each, f"Statement {number}") for number, each in enumerate(statements, start=1)),
        keeps_published=keeps,
    )


def read_statement(document: object, at: str) -> Statement:
    """Read one statement.

    Args:
        document: A table with Effect, Action or NotAction, Resource or NotResource, and optionally Condition and Sid.
        at: Its place, for errors.

    Raises:
        ValueError: As for `read_policy`.
    """
    members = read_table(document, at, _STATEMENT_MEMBERS)
    missing = ["Effect"] if "Effect" not in members else []
    missing += [name for name in ("Action", "Resource") if not {name, f"Not{name}"} & members.keys()]
    if missing:
        raise ValueError(f"{at}: {', '.join(missing)} is missing; a statement has Effect, Action and Resource")
    for name in ("Action", "Resource"):
        if {name, f"Not{name}"} <= members.keys():
            raise ValueError(f"{at} has both {name} and Not{name}; give one of the two")
    if members["Effect"] not in list(PolicyEffect):
        raise ValueError(f"{at}: Effect is {members['Effect']!r}; allowed are {', '.join(PolicyEffect)}")
    effect, action = PolicyEffect(members["Effect"]), "Action" if "Action" in members else "NotAction"
    resource = "Resource" if "Resource" in members else "NotResource"
    return Statement(
        effect=effect,
        actions=tuple(
            _action(text, f"{at}: {action}", denies=effect is PolicyEffect.DENY)
            for text in read_texts(members[action], f"{at}: {action}")
        ),
        resources=tuple(
            _resource(text, f"{at}: {resource}") for text in read_texts(members[resource], f"{at}: {resource}")
        ),
        conditions=_conditions(members.get("Condition", {}), at, denies=effect is PolicyEffect.DENY),
        other_actions=action == "NotAction",
        other_resources=resource == "NotResource",
    )


def _action(text: str, at: str, *, denies: bool) -> ActionPattern:
    """Read an action. One that no request needs may be allowed, as AWS's policies do, but not denied or excepted."""
    if not _ACTION.fullmatch(text):
        raise ValueError(f"{at} {text!r} is malformed; expected SERVICE:NAME, e.g. 's3:GetObject' or 's3:Get*'")
    pattern = ActionPattern(text)
    excepts = at.endswith(": NotAction")
    if (denies or excepts) and not any(pattern.fits(action) for action in ACTIONS):
        service = text.partition(":")[0].lower()
        known = sorted(action for action in ACTIONS if action.startswith(f"{service}:"))
        if not known and excepts:
            return pattern  # of a service that does not exist here, nothing could be excepted
        services = sorted({action.partition(":")[0] for action in ACTIONS})
        allowed = ", ".join(known) if known else f"actions of {', '.join(services)}"
        raise ValueError(
            f"{at} {text!r} fits no action that this service has, so it would have no effect; there are {allowed}"
        )
    return pattern


def _conditions(document: object, at: str, *, denies: bool) -> tuple[Condition, ...]:
    if not isinstance(document, dict):
        raise ValueError(f"{at}: Condition is {document!r}; expected a table from operators to keys and values")
    found = []
    for operator, keys in document.items():
        what = f"{at}: Condition.{operator}"
        if not isinstance(keys, dict):
            raise ValueError(f"{what} is {keys!r}; expected a table from keys to values")
        for key, values in keys.items():
            try:
                texts = _values(values)
                _check_placeholders(texts)
                condition = Condition.read(operator, key, texts)
            except ValueError as error:
                raise ValueError(f"{what}.{key} has {error}") from error
            try:
                check_key(condition, denies=denies)
            except ValueError as error:
                raise ValueError(f"{what} has {error}") from error
            found.append(condition)
    return tuple(found)


def _values(document: object) -> tuple[str, ...]:
    """Return the values of a condition as texts: numbers and Booleans may be written as such, and texts be empty."""
    texts = []
    for value in document if isinstance(document, list) else [document]:
        if isinstance(value, bool):
            texts.append(str(value).lower())
        elif isinstance(value, str | int | float):
            texts.append(str(value))
        else:
            raise ValueError(f"{value!r}; expected texts, numbers, true or false")
    if not texts:
        raise ValueError("no value; expected at least one")
    return tuple(texts)


def _check_placeholders(texts: tuple[str, ...]) -> None:
    for text in texts:
        if not _is_closed(text):
            raise ValueError(f"{text!r}, a placeholder without its closing brace")
        unknown = [each.name for each in placeholders_of(text) if not _is_variable(each.name)]
        if unknown:
            raise ValueError(f"{text!r} with the unknown variable ${{{unknown[0]}}}; {_VARIABLES}")


def _is_variable(name: str) -> bool:
    return name in PLACEHOLDERS or (":" in name and is_known(name))


def _resource(text: str, at: str) -> ResourcePattern:
    if not _is_closed(text):
        raise ValueError(f"{at} {text!r} has a placeholder without its closing brace")
    try:
        pattern = ResourcePattern.parse(text)
    except ValueError as error:
        raise ValueError(f"{at} {error}") from error
    unknown = [each.name for each in pattern.placeholders if not _is_variable(each.name)]
    if unknown:
        raise ValueError(f"{at} {text!r} has the unknown placeholder ${{{unknown[0]}}}; {_VARIABLES}")
    return pattern


def _is_closed(text: str) -> bool:
    # Without a brace behind the last placeholder, each search for one would read to the end: quadratic time.
    return text.rfind("${") <= text.rfind("}") and text.count("${") == len(re.findall(r"\$\{[^}]*\}", text))


def read_table(document: object, what: str, allowed: tuple[str, ...]) -> Mapping[str, Any]:
    """Return a table that has no other than the allowed members; raise ValueError for anything else.

    Args:
        document: What a settings file or request has.
        what: What it is called in the error.
        allowed: Names of members.

    Raises:
        ValueError: For another type or member.
    """
    if not isinstance(document, dict):
        raise ValueError(f"{what} is {document!r}; expected a table with {', '.join(allowed)}")
    unknown = sorted(str(name) for name in document.keys() - set(allowed))
    if unknown:
        raise ValueError(
            f"{what} has {', '.join(unknown)}, which this service does not honor; allowed are {', '.join(allowed)}"
        )
    return document


def read_texts(value: object, what: str) -> tuple[str, ...]:
    """Return a text, or a list of texts, as a tuple; raise ValueError for anything else.

    Args:
        value: A string or a list of strings.
        what: What it is called in the error.

    Raises:
        ValueError: For anything else.
    """
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise ValueError(f"{what} is {value!r}; expected a text, or a list of at least one text")
    return tuple(texts)
