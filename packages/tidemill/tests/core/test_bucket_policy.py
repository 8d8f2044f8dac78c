"""Policies of buckets: what is refused with the reason, and whom and what statements are about."""

import json
from typing import Any

import pytest

from tidemill.core.bucket_policy import ENCRYPTION, ENCRYPTION_KEY, SECURE_TRANSPORT, Facts, read_bucket_policy
from tidemill.core.policy import Permission, Ruling

ACCOUNT = "000000000000"
SESSION = f"arn:aws:sts::{ACCOUNT}:assumed-role/Trainer/digits"
PUT = Permission("s3:PutObject", "arn:aws:s3:::b/k")
PLAIN: Facts = {ENCRYPTION: (), ENCRYPTION_KEY: (), SECURE_TRANSPORT: ("false",)}


def statement(**members: Any) -> dict[str, Any]:
    base = {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::b/*"}
    return {name: value for name, value in {**base, **members}.items() if value is not None}


def ruling(facts: Facts = PLAIN, *, caller: str = SESSION, **members: Any) -> Ruling:
    text = json.dumps({"Version": "2012-10-17", "Statement": statement(**members)})
    return read_bucket_policy(text, bucket="b").rule(PUT, caller=caller, facts=facts)[0]


MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"Principal": None}, "Principal is missing"),
    ({"Principal": {"Service": "logging.s3.amazonaws.com"}}, "allowed are AWS"),
    ({"Principal": {"AWS": "arn:aws:iam::111122223333:root"}}, "'arn:aws:iam::111122223333:root'; allowed are '*'"),
    ({"Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:role/*"}}, "without wildcards"),
    ({"NotPrincipal": "*"}, "NotPrincipal"),
    ({"Action": "sagemaker:CreateModel"}, "is none of S3"),
    ({"Action": "s3:PutObjekt"}, "fits no action"),
    ({"Resource": "arn:aws:s3:::other/*"}, "allowed are arn:aws:s3:::b and arn:aws:s3:::b/KEY"),
    ({"Resource": "arn:aws:s3:::b/${job.name}"}, "allowed are arn:aws:s3:::b"),
    ({"Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}}, "IpAddress.*allowed are StringEquals"),
    ({"Condition": {"StringEquals": {"s3:prefix": "a"}}}, "'s3:prefix'; supported are s3:x-amz-server-side"),
    ({"Condition": {"StringEquals": {SECURE_TRANSPORT: "true"}}}, "Bool is for aws:SecureTransport"),
    ({"Condition": {"Bool": {ENCRYPTION: "true"}}}, "Bool is for aws:SecureTransport"),
    ({"Condition": {"Null": {ENCRYPTION: "yes"}}}, "'yes'; allowed are 'true' and 'false'"),
    ({"Condition": {"StringEquals": {ENCRYPTION: "${aws:username}"}}}, "texts without variables"),
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


CONDITIONS: list[tuple[str, str, Any, Facts, bool]] = [
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


@pytest.mark.parametrize(("operator", "key", "values", "facts", "fits"), CONDITIONS)
def test_a_condition_compares_as_iam_documents(
    operator: str, key: str, values: Any, facts: Facts, *, fits: bool
) -> None:
    expected = Ruling.DENIED if fits else Ruling.UNMENTIONED
    assert ruling(facts, Condition={operator: {key: values}}) is expected


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
