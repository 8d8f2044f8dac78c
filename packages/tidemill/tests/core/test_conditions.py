"""Conditions of policies: IAM's operators, keys that are absent or not known, variables, and negated elements."""

import json
import re
from typing import Any

import pytest

from tidemill.core.conditions import Fact, Facts, Lack
from tidemill.core.facts import RequestSender
from tidemill.core.policy import Permission, Ruling
from tidemill.core.policy_document import read_policy

GET = Permission("s3:GetObject", "arn:aws:s3:::bkt/ann/key")
USER = "arn:aws:iam::000000000000:user/ann"
ROLE = "arn:aws:iam::000000000000:role/Trainer"


def facts_of(known: dict[str, Fact]) -> Facts:
    """Return facts in which every other key is absent."""
    folded = {key.casefold(): value for key, value in known.items()}
    return folded.get


def ruling(known: dict[str, Fact], *, effect: str = "Allow", facts: Facts | None = None, **members: Any) -> Ruling:
    base = {"Effect": effect, "Action": "s3:*", "Resource": "*"}
    statement = {name: value for name, value in {**base, **members}.items() if value is not None}
    policy = read_policy(json.loads(json.dumps({"Statement": statement})))
    return policy.rule(GET, {"job.name": "j"}, facts or facts_of(known))


def fulfilled(operator: str, key: str, values: Any, found: Fact) -> bool:
    """Return whether a condition is fulfilled; for what is known, Allow and Deny must agree."""
    condition = {operator: {key: values}}
    allows = ruling({key: found}, Condition=condition) is Ruling.ALLOWED
    assert (ruling({key: found}, effect="Deny", Condition=condition) is Ruling.DENIED) is allows
    return allows


OPERATORS: list[tuple[str, str, Any, Fact, bool]] = [
    ("StringEquals", "aws:username", ["bob", "ann"], ("ann",), True),
    ("stringequals", "AWS:UserName", "ann", ("ann",), True),
    ("StringEquals", "aws:username", "Ann", ("ann",), False),
    ("StringEquals", "aws:username", "a*", ("ann",), False),
    ("StringEquals", "s3:prefix", ["", "home/"], ("",), True),
    ("StringEqualsIgnoreCase", "aws:username", "ANN", ("ann",), True),
    ("StringNotEqualsIgnoreCase", "aws:username", "ANN", ("ann",), False),
    ("StringNotEquals", "aws:username", ["bob", "ann"], ("ann",), False),
    ("StringNotEquals", "aws:username", "bob", ("ann",), True),
    ("StringNotEquals", "aws:username", "bob", None, True),
    ("StringEquals", "aws:username", "ann", None, False),
    ("StringEqualsIfExists", "aws:username", "ann", None, True),
    ("StringEqualsIfExists", "aws:username", "ann", ("bob",), False),
    ("StringLike", "aws:username", "a*n", ("ann",), True),
    ("StringLike", "aws:username", "a?", ("ann",), False),
    ("StringLike", "aws:username", "a${*}", ("ann",), False),
    ("StringNotLike", "aws:username", "a*", ("ann",), False),
    ("StringNotLike", "aws:username", "a*", None, True),
    ("Null", "aws:username", "true", None, True),
    ("Null", "aws:username", True, ("ann",), False),
    ("Null", "aws:username", "false", ("ann",), True),
    ("Null", "aws:MultiFactorAuthPresent", "true", None, True),
    ("Bool", "aws:SecureTransport", True, ("true",), True),
    ("Bool", "aws:SecureTransport", "FALSE", ("true",), False),
    ("Bool", "aws:MultiFactorAuthPresent", "false", None, False),
    ("BoolIfExists", "aws:MultiFactorAuthPresent", "false", None, True),
    ("NumericEquals", "s3:max-keys", "10", ("10.0",), True),
    ("NumericNotEquals", "s3:max-keys", 10, ("11",), True),
    ("NumericLessThan", "s3:max-keys", 10, ("9",), True),
    ("NumericLessThanEquals", "s3:max-keys", "10", ("10",), True),
    ("NumericLessThanEquals", "s3:max-keys", "10", ("100",), False),
    ("NumericGreaterThan", "s3:max-keys", "10", ("9",), False),
    ("NumericGreaterThanEquals", "s3:max-keys", "10", ("10",), True),
    ("NumericLessThan", "s3:max-keys", "10", None, False),
    ("NumericLessThan", "s3:max-keys", "10", ("many",), False),
    ("DateGreaterThan", "aws:CurrentTime", "2030-01-01T00:00:00Z", ("2030-01-01T00:00:01Z",), True),
    ("DateLessThan", "aws:CurrentTime", "2030-01-01", ("2030-01-01T00:00:01Z",), False),
    ("DateLessThanEquals", "aws:EpochTime", "1893456000", ("1893456000",), True),
    ("DateEquals", "aws:CurrentTime", "2030-01-01T01:00:00+01:00", ("2030-01-01T00:00:00Z",), True),
    ("DateNotEquals", "aws:CurrentTime", "2030-01-01T00:00:00Z", ("2030-01-01T00:00:00Z",), False),
    ("DateGreaterThanEquals", "aws:EpochTime", "2030-01-01T00:00:00Z", ("1893455999",), False),
    ("IpAddress", "aws:SourceIp", ["10.0.0.0/8", "2001:db8::/32"], ("10.1.2.3",), True),
    ("IpAddress", "aws:SourceIp", "10.0.0.0/8", ("::ffff:10.1.2.3",), True),
    ("IpAddress", "aws:SourceIp", "2001:db8::/32", ("2001:db8::1",), True),
    ("IpAddress", "aws:SourceIp", "10.1.2.3", ("10.1.2.4",), False),
    ("IpAddress", "aws:SourceIp", "10.0.0.0/8", None, False),
    ("NotIpAddress", "aws:SourceIp", "10.0.0.0/8", ("192.168.0.1",), True),
    ("NotIpAddress", "aws:SourceIp", "10.0.0.0/8", None, True),
    ("IpAddress", "aws:username", "10.0.0.0/8", ("ann",), False),
    ("ArnLike", "aws:PrincipalArn", "arn:aws:iam::*:user/a*", (USER,), True),
    ("ArnEquals", "aws:PrincipalArn", "arn:aws:iam::*:user/*", (USER,), True),
    ("ArnLike", "aws:PrincipalArn", "arn:aws:s3:::*", (USER,), False),
    ("ArnNotLike", "aws:PrincipalArn", "arn:aws:iam::*:user/a*", (USER,), False),
    ("ArnNotEquals", "aws:PrincipalArn", USER, None, True),
    ("ArnEquals", "aws:PrincipalArn", ROLE, (ROLE.replace("Trainer", "tRAINER"),), True),
    ("StringNotEquals", "aws:PrincipalArn", ROLE, (ROLE.replace("Trainer", "tRAINER"),), False),
    ("StringEquals", "aws:PrincipalArn", USER, (USER.replace("ann", "Ann"),), False),
    ("ForAllValues:StringEquals", "aws:TagKeys", ["team", "stage"], ("team", "stage"), True),
    ("ForAllValues:StringEquals", "aws:TagKeys", ["team", "stage"], ("team", "other"), False),
    ("ForAllValues:StringEquals", "aws:TagKeys", ["team"], None, True),
    ("ForAllValues:StringNotEquals", "aws:TagKeys", ["team"], ("stage", "team"), False),
    ("ForAnyValue:StringEquals", "aws:TagKeys", ["team"], ("stage", "team"), True),
    ("ForAnyValue:StringEquals", "aws:TagKeys", ["team"], ("stage",), False),
    ("ForAnyValue:StringEquals", "aws:TagKeys", ["team"], None, False),
    ("ForAnyValue:StringNotEquals", "aws:TagKeys", ["team"], ("stage", "team"), True),
    ("ForAnyValue:StringNotEquals", "aws:TagKeys", ["team"], None, False),
    ("foranyvalue:stringlikeifexists", "aws:TagKeys", "t*", None, True),
    ("StringEquals", "aws:TagKeys", "team", ("stage", "team"), True),
    ("StringNotEquals", "aws:TagKeys", "team", ("stage", "team"), False),
    ("BinaryEquals", "aws:username", "YW5u", ("YW5u",), True),
]


@pytest.mark.parametrize(("operator", "key", "values", "found", "expected"), OPERATORS)
def test_an_operator_compares_as_iam_documents(
    operator: str, key: str, values: Any, found: Fact, *, expected: bool
) -> None:
    assert fulfilled(operator, key, values, found) is expected


NEGATIONS = [("StringEquals", "x"), ("StringNotEquals", "x"), ("StringLikeIfExists", "*"), ("Null", "true")]


@pytest.mark.parametrize(("operator", "value"), NEGATIONS)
def test_what_is_not_known_never_allows_and_never_keeps_from_denying(operator: str, value: str) -> None:
    condition = {operator: {"aws:SourceIp": value}}
    unknown: dict[str, Fact] = {"aws:SourceIp": Lack.UNDETERMINED}
    assert ruling(unknown, Condition=condition) is Ruling.UNMENTIONED
    assert ruling(unknown, effect="Deny", Condition=condition) is Ruling.DENIED
    waived: dict[str, Fact] = {"aws:SourceIp": Lack.WAIVED}
    assert ruling(waived, Condition=condition) is Ruling.UNMENTIONED
    assert ruling(waived, effect="Deny", Condition=condition) is Ruling.UNMENTIONED


def test_a_policy_that_is_evaluated_without_a_request_counts_no_condition_as_fulfilled() -> None:
    condition = {"StringNotEquals": {"aws:username": "bob"}}
    for effect, expected in (("Allow", Ruling.UNMENTIONED), ("Deny", Ruling.DENIED)):
        statement = {"Effect": effect, "Action": "s3:*", "Resource": "*", "Condition": condition}
        assert read_policy({"Statement": statement}).rule(GET, {}) is expected


def test_all_conditions_of_a_statement_must_be_fulfilled() -> None:
    texts = {"aws:username": "ann", "aws:PrincipalType": "User"}
    condition = {"StringEquals": texts, "Bool": {"aws:SecureTransport": True}}
    known: dict[str, Fact] = {
        "aws:username": ("ann",),
        "aws:PrincipalType": ("User",),
        "aws:SecureTransport": ("true",),
    }
    assert ruling(known, Condition=condition) is Ruling.ALLOWED
    for key in known:
        assert ruling({**known, key: ("other",)}, Condition=condition) is Ruling.UNMENTIONED, key


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"StringEquals": {"aws:PrincipalTag/team": "a"}}, "Deny"),
    ({"StringNotEquals": {"aws:PrincipalTag/team": "a"}}, "Deny"),
    ({"StringNotEquals": {"aws:PrincipalTag/team": "a"}}, "Allow"),
    ({"StringEqualsIfExists": {"ec2:Region": "a"}}, "Allow"),
    ({"ForAllValues:StringEquals": {"ec2:Region": "a"}}, "Allow"),
    ({"Null": {"ec2:Region": "true"}}, "Allow"),
]


@pytest.mark.parametrize(("condition", "effect"), REFUSED)
def test_a_key_that_is_not_known_is_refused_by_name_where_it_would_lose_a_deny_or_give_rights(
    condition: dict[str, Any], effect: str
) -> None:
    (operator,) = condition
    (key,) = condition[operator]
    with pytest.raises(ValueError, match=f"Condition.{operator} has the key '{key.casefold()}'.*aws:SourceIp"):
        ruling({}, effect=effect, Condition=condition)


def test_an_allow_on_a_key_that_is_not_known_gives_nothing() -> None:
    for condition in ({"StringEquals": {"ec2:Region": "a"}}, {"Null": {"aws:PrincipalTag/team": "false"}}):
        assert ruling({}, Condition=condition) is Ruling.UNMENTIONED


@pytest.mark.parametrize(
    ("condition", "fault"),
    [
        ({"StringEqual": {"aws:username": "a"}}, "'StringEqual' is no operator"),
        ({"ForSome:StringEquals": {"aws:username": "a"}}, "'ForSome:StringEquals' is no operator"),
        ({"NullIfExists": {"aws:username": "true"}}, "'NullIfExists' is no operator"),
        ({"StringEquals": "aws:username"}, "expected a table from keys to values"),
        ({"StringEquals": {"aws:username": []}}, "no value; expected at least one"),
        ({"StringEquals": {"aws:username": [{}]}}, "{}; expected texts"),
        ({"Null": {"aws:username": "maybe"}}, "'maybe'; allowed are 'true' and 'false'"),
        ({"NumericEquals": {"s3:max-keys": "ten"}}, "'ten'; expected a number"),
        ({"NumericEquals": {"s3:max-keys": "NaN"}}, "'NaN'; expected a number"),
        ({"DateLessThan": {"aws:CurrentTime": "soon"}}, "'soon'; expected a date"),
        ({"IpAddress": {"aws:SourceIp": "10.0.0.0/40"}}, "'10.0.0.0/40'; expected an address"),
        ({"ArnLike": {"aws:PrincipalArn": "role/R"}}, "'role/R'; expected an ARN of six parts"),
        ({"ArnLike": {"aws:PrincipalArn": "arn:aws:iam::${aws:userid}:role/R"}}, "variables only in the last"),
        ({"IpAddress": {"aws:SourceIp": "${aws:SourceIp}"}}, "variables can only stand in texts and ARNs"),
        ({"StringEquals": {"aws:username": "${aws:PrincipalTag/a}"}}, "unknown variable"),
        ({"StringEquals": {"aws:username": "${aws:username"}}, "without its closing brace"),
    ],
)
def test_a_condition_that_cannot_be_evaluated_is_refused_with_its_place(condition: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=f"Statement 1: Condition.*{re.escape(fault)}"):
        ruling({}, Condition=condition)


VARIABLES: list[tuple[str, dict[str, Fact], bool]] = [
    ("arn:aws:s3:::bkt/${aws:username}/*", {"aws:username": ("ann",)}, True),
    ("arn:aws:s3:::bkt/${AWS:UserName}/*", {"aws:username": ("ann",)}, True),
    ("arn:aws:s3:::bkt/${aws:username}/*", {"aws:username": ("bob",)}, False),
    ("arn:aws:s3:::bkt/${aws:username}/*", {"aws:username": ("*",)}, False),
    ("arn:aws:s3:::bkt/${aws:username}/*", {}, False),
    ("arn:aws:s3:::bkt/${aws:username, 'ann'}/*", {}, True),
    ("arn:aws:s3:::bkt/${aws:username, 'ann'}/*", {"aws:username": ("bob",)}, False),
]


@pytest.mark.parametrize(("resource", "known", "expected"), VARIABLES)
def test_a_variable_stands_for_its_value_and_is_no_wildcard(
    resource: str, known: dict[str, Fact], *, expected: bool
) -> None:
    assert (ruling(known, Resource=resource) is Ruling.ALLOWED) is expected
    assert (ruling(known, effect="Deny", Resource=resource) is Ruling.DENIED) is expected


@pytest.mark.parametrize("value", [Lack.UNDETERMINED, ("ann", "bob")])
def test_a_variable_whose_value_is_not_known_never_allows_and_never_keeps_from_denying(value: Fact) -> None:
    known: dict[str, Fact] = {"aws:username": value, "s3:prefix": ("p",)}
    condition = {"StringNotEquals": {"s3:prefix": "${aws:username}"}}
    for members in (
        {"Resource": "arn:aws:s3:::bkt/${aws:username}/*"},
        {"Resource": None, "NotResource": "arn:aws:s3:::bkt/${aws:username}/*"},
        {"Condition": condition},
        {"Condition": {"StringEquals": {"s3:prefix": "${aws:username}"}}},
    ):
        assert ruling(known, **members) is Ruling.UNMENTIONED, members
        assert ruling(known, effect="Deny", **members) is Ruling.DENIED, members
    absent = {"s3:prefix": known["s3:prefix"]}
    assert ruling(absent, Condition=condition) is Ruling.UNMENTIONED
    assert ruling(absent, effect="Deny", Condition=condition) is Ruling.DENIED


def test_variables_of_conditions_are_replaced_in_texts_and_arns() -> None:
    known: dict[str, Fact] = {"s3:prefix": ("home/a*n/x",), "aws:username": ("a*n",), "aws:PrincipalArn": (USER,)}
    assert ruling(known, Condition={"StringLike": {"s3:prefix": "home/${aws:username}/*"}}) is Ruling.ALLOWED
    other: dict[str, Fact] = {**known, "s3:prefix": ("home/ann/x",)}
    assert ruling(other, Condition={"StringLike": {"s3:prefix": "home/${aws:username}/*"}}) is Ruling.UNMENTIONED
    own = {"ArnEquals": {"aws:PrincipalArn": "arn:aws:iam::*:user/${aws:username}"}}
    assert ruling({**known, "aws:username": ("ann",)}, Condition=own) is Ruling.ALLOWED
    assert ruling(known, Condition=own) is Ruling.UNMENTIONED


def test_negated_actions_and_resources_are_all_others() -> None:
    assert ruling({}, Action=None, NotAction=["iam:*", "organizations:*"]) is Ruling.ALLOWED
    assert ruling({}, Action=None, NotAction=["s3:Get*"]) is Ruling.UNMENTIONED
    assert ruling({}, Resource=None, NotResource=["arn:aws:s3:::other/*"]) is Ruling.ALLOWED
    assert ruling({}, Resource=None, NotResource=["arn:aws:s3:::bkt/*", "arn:aws:s3:::x"]) is Ruling.UNMENTIONED
    for effect, expected in (("Allow", Ruling.UNMENTIONED), ("Deny", Ruling.DENIED)):
        no_value = {"Resource": None, "NotResource": "arn:aws:s3:::bkt/${job.model_dir}/*"}
        assert ruling({}, effect=effect, **no_value) is expected, "what it excludes is not known"


def test_the_sender_of_a_request_has_the_values_that_aws_documents() -> None:
    def of(arn: str, key: str, **members: Any) -> Fact:
        return RequestSender(arn=arn, now_ms=1_893_456_000_500, region="eu-west-1", **members).fact(key.casefold())

    session = "arn:aws:sts::000000000000:assumed-role/Trainer/digits"
    assert of(USER, "aws:username") == ("ann",)
    assert of(session, "aws:username") is None
    assert (of(USER, "aws:PrincipalType"), of(session, "aws:PrincipalType")) == (("User",), ("AssumedRole",))
    assert (of(USER, "aws:PrincipalArn"), of(session, "aws:PrincipalArn")) == ((USER,), (ROLE,))
    assert of(session.replace("Trainer", "TRAINER"), "aws:userid") == of(session, "aws:userid")
    assert of(USER, "aws:userid") != of(USER.replace("ann", "annemarie"), "aws:userid")
    assert of(USER, "aws:CurrentTime") == ("2030-01-01T00:00:00Z",)
    assert of(USER, "aws:EpochTime") == ("1893456000",)
    assert of(USER, "aws:RequestedRegion") == ("eu-west-1",)
    assert of(USER, "aws:SourceIp") is Lack.UNDETERMINED
    assert of(USER, "aws:SourceIp", address=None, internal=True) is None
    assert of(USER, "aws:ViaAWSService", internal=True) == ("true",)
    assert of(USER, "aws:SecureTransport", secure=True) == ("true",)
    assert of(USER, "aws:MultiFactorAuthPresent") is None
