"""Policies of buckets: what is refused with the reason, and whom and what statements are about."""

import json
from typing import Any

import pytest

from tidemill.core.bucket_policy import read_bucket_policy
from tidemill.core.condition_keys import ENCRYPTION, ENCRYPTION_KEY, SECURE_TRANSPORT
from tidemill.core.conditions import Lack
from tidemill.core.policy import Permission, Ruling

ACCOUNT = "000000000000"
SESSION = f"arn:aws:sts::{ACCOUNT}:assumed-role/Trainer/digits"
PUT = Permission("s3:PutObject", "arn:aws:s3:::b/k")
Known = dict[str, tuple[str, ...]]
PLAIN: Known = {ENCRYPTION: (), ENCRYPTION_KEY: (), SECURE_TRANSPORT: ("false",)}


def statement(**members: Any) -> dict[str, Any]:
    base = {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::b/*"}
    return {name: value for name, value in {**base, **members}.items() if value is not None}


def ruling(known: Known = PLAIN, *, caller: str = SESSION, **members: Any) -> Ruling:
    text = json.dumps({"Version": "2012-10-17", "Statement": statement(**members)})
    facts = {key.casefold(): values for key, values in known.items()}
    policy = read_bucket_policy(text, bucket="b")
    return policy.rule(PUT, caller=caller, facts=lambda key: facts.get(key, Lack.WAIVED))[0]


MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"Principal": None}, "Principal is missing"),
    ({"Principal": {"Service": "logging.s3.amazonaws.com"}}, "allowed are AWS"),
    ({"Principal": {"AWS": "arn:aws:iam::111122223333:root"}}, "'arn:aws:iam::111122223333:root'; allowed are '*'"),
    ({"Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:role/*"}}, "without wildcards"),
    ({"NotPrincipal": "*"}, "Principal and NotPrincipal are both there"),
    ({"Principal": None, "NotPrincipal": "*"}, "about nobody"),
    ({"Principal": None, "NotPrincipal": {"AWS": SESSION}, "Effect": "Allow"}, "allow it to everyone else"),
    ({"Action": "sagemaker:CreateModel"}, "is none of S3"),
    ({"Action": "s3:PutObjekt"}, "fits no action"),
    ({"Resource": "arn:aws:s3:::other/*"}, "allowed are arn:aws:s3:::b and arn:aws:s3:::b/KEY"),
    ({"Resource": "arn:aws:s3:::b/${job.name}"}, "allowed are arn:aws:s3:::b"),
    ({"Condition": {"IpAddres": {"aws:SourceIp": "10.0.0.0/8"}}}, "'IpAddres' is no operator.*IpAddress"),
    ({"Condition": {"StringEquals": {"s3:prefixes": "a"}}}, "'s3:prefixes', whose value.*supported are.*s3:prefix"),
    ({"Condition": {"Bool": {SECURE_TRANSPORT: "yes"}}}, "'yes'; allowed are 'true' and 'false'"),
    ({"Condition": {"Null": {ENCRYPTION: "yes"}}}, "'yes'; allowed are 'true' and 'false'"),
    ({"Condition": {"StringEquals": {ENCRYPTION: "${aws:usernames}"}}}, "the unknown variable \\${aws:usernames}"),
    ({"Condition": {"Bool": {SECURE_TRANSPORT: "${aws:username}"}}}, "allowed are 'true' and 'false'"),
    ({"Condition": {"StringEquals": ENCRYPTION}}, "expected a table"),
]


@pytest.mark.parametrize(("members", "message"), MALFORMED)
def test_what_would_not_be_honored_is_refused_by_name(members: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ruling(**members)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no JSON", "not JSON"),
        ("[]", "expected a table"),
        ('{"Statement": []}', "Statement is empty"),
        ('{"Version": "2020-01-01", "Statement": {}}', "allowed are 2012-10-17, 2008-10-17"),
        (json.dumps({"Id": "x" * 20480, "Statement": []}), "allowed are 20480"),
    ],
)
def test_a_text_that_is_no_policy_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_bucket_policy(text, bucket="b")


CONDITIONS: list[tuple[str, str, Any, Known, bool]] = [
    ("Null", ENCRYPTION, "true", {ENCRYPTION: ()}, True),
    ("Null", ENCRYPTION, True, {ENCRYPTION: ("AES256",)}, False),
    ("Null", ENCRYPTION.upper(), "false", {ENCRYPTION: ("AES256",)}, True),
    ("StringEquals", ENCRYPTION, ["AES256", "aws:kms"], {ENCRYPTION: ("aws:kms",)}, True),
    ("StringEquals", ENCRYPTION, "AES256", {ENCRYPTION: ()}, False),
    ("StringNotEquals", ENCRYPTION, "aws:kms", {ENCRYPTION: ()}, True),
    ("StringNotEquals", ENCRYPTION, "aws:kms", {ENCRYPTION: ("aws:kms",)}, False),
    ("StringNotEquals", ENCRYPTION_KEY, "arn:k", {ENCRYPTION_KEY: ("k", "arn:k")}, False),
    ("StringLike", ENCRYPTION, "aws:kms*", {ENCRYPTION: ("aws:kms:dsse",)}, True),
    ("StringLike", ENCRYPTION, "aws:kms?", {ENCRYPTION: ("aws:kms",)}, False),
    ("Bool", SECURE_TRANSPORT, "false", {SECURE_TRANSPORT: ("false",)}, True),
    ("Bool", SECURE_TRANSPORT, False, {SECURE_TRANSPORT: ("true",)}, False),
    ("Null", ENCRYPTION, "true", {}, False),
]


@pytest.mark.parametrize(("operator", "key", "values", "known", "fits"), CONDITIONS)
def test_a_condition_compares_as_iam_documents(
    operator: str, key: str, values: Any, known: Known, *, fits: bool
) -> None:
    expected = Ruling.DENIED if fits else Ruling.UNMENTIONED
    assert ruling(known, Condition={operator: {key: values}}) is expected


def test_all_conditions_of_a_statement_must_be_fulfilled() -> None:
    condition = {"Null": {ENCRYPTION: "true"}, "Bool": {SECURE_TRANSPORT: "true"}}
    assert ruling(Condition=condition) is Ruling.UNMENTIONED
    assert ruling({**PLAIN, SECURE_TRANSPORT: ("true",)}, Condition=condition) is Ruling.DENIED


PRINCIPALS: list[tuple[Any, bool, bool]] = [
    ("*", True, False),
    ({"AWS": "*"}, True, False),
    ({"AWS": ACCOUNT}, True, False),
    ({"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, True, False),
    ({"AWS": [f"arn:aws:iam::{ACCOUNT}:role/service-role/Trainer"]}, True, True),
    ({"AWS": SESSION}, True, True),
    ({"AWS": f"{SESSION}-2"}, False, False),
    ({"AWS": f"arn:aws:iam::{ACCOUNT}:role/Train"}, False, False),
    ({"AWS": f"arn:aws:iam::{ACCOUNT}:user/digits"}, False, False),
]


@pytest.mark.parametrize(("principal", "denied", "allowed"), PRINCIPALS)
def test_deny_holds_for_the_whole_account_and_allow_only_for_those_it_names(
    principal: Any, *, denied: bool, allowed: bool
) -> None:
    assert ruling(Principal=principal) is (Ruling.DENIED if denied else Ruling.UNMENTIONED)
    assert ruling(Principal=principal, Effect="Allow") is (Ruling.ALLOWED if allowed else Ruling.UNMENTIONED)


def test_deny_for_all_but_some_holds_for_everyone_else() -> None:
    for other in ({"AWS": SESSION}, {"AWS": [f"arn:aws:iam::{ACCOUNT}:role/TRAINER", f"arn:aws:iam::{ACCOUNT}:root"]}):
        named = {"Principal": None, "NotPrincipal": other}
        assert ruling(**named) is Ruling.UNMENTIONED
        assert ruling(caller=f"arn:aws:iam::{ACCOUNT}:user/ann", **named) is Ruling.DENIED
    everyone_in_it = {"Principal": None, "NotPrincipal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}}
    assert ruling(**everyone_in_it) is Ruling.DENIED


@pytest.mark.parametrize("named", [f"arn:aws:iam::{ACCOUNT}:role/Trainer", SESSION])
def test_the_name_of_a_role_is_the_same_in_every_case(named: str) -> None:
    other_case = SESSION.replace("Trainer", "tRAINER")
    assert ruling(caller=other_case, Principal={"AWS": named}) is Ruling.DENIED


def test_a_resource_may_have_the_name_of_the_user() -> None:
    of_user = {"Resource": "arn:aws:s3:::b/${aws:username}*"}
    assert ruling({"aws:username": ("k",)}, **of_user) is Ruling.DENIED
    assert ruling({"aws:username": ("ann",)}, **of_user) is Ruling.UNMENTIONED
