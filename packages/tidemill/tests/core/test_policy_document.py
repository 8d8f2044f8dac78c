"""Policies in the settings: what is accepted is honored, and a refusal gives the reason."""

import json
from pathlib import Path
from typing import Any

import pytest

from tidemill.cli.options import load_settings
from tidemill.core.policy import Permission, Ruling
from tidemill.core.policy_document import load_document, read_policy
from tidemill.errors import ConfigurationError

ALLOW: dict[str, Any] = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
GET = Permission("s3:GetObject", "arn:aws:s3:::bucket/key")


def test_an_iam_document_is_read_as_it_is() -> None:
    document = json.loads(
        """
        {"Version": "2012-10-17", "Statement": [
            {"Sid": "Read", "Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"],
             "Resource": ["arn:aws:s3:::bucket", "arn:aws:s3:::bucket/*"]}]}
        """
    )
    policy = read_policy(document)
    assert policy.rule(GET, {}) is Ruling.ALLOWED
    assert policy.rule(GET._replace(resource="arn:aws:s3:::other/key"), {}) is Ruling.UNMENTIONED


def test_one_statement_and_no_statement_are_policies() -> None:
    assert read_policy({"Statement": ALLOW}).rule(GET, {}) is Ruling.ALLOWED
    assert read_policy({"Statement": []}).rule(GET, {}) is Ruling.UNMENTIONED


def test_statements_decide_alone_unless_the_policy_keeps_what_is_published() -> None:
    assert not read_policy({"Statement": ALLOW}).keeps_published
    assert read_policy({"Statement": ALLOW, "KeepPublished": True}).keeps_published


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ("s3:*", "a policy is 's3:\\*'; expected a table with Version, Statement"),
        ({}, "Statement is missing"),
        ({"Statement": [], "Id": "x"}, "a policy has Id, which this service does not honor"),
        ({"Statement": [], "Version": "2008-10-17"}, "Version is '2008-10-17'; only '2012-10-17'"),
        ({"Statement": [], "KeepPublished": "yes"}, "KeepPublished is 'yes'; allowed are true and false"),
        ({"Statement": [ALLOW, "x"]}, "Statement 2 is 'x'; expected a table"),
        ({"Statement": {**ALLOW, "Condition": []}}, "Condition is \\[\\]; expected a table from operators"),
        ({"Statement": {**ALLOW, "NotAction": "s3:*"}}, "Statement 1 has both Action and NotAction"),
        ({"Statement": {**ALLOW, "NotResource": "*"}}, "Statement 1 has both Resource and NotResource"),
        (
            {"Statement": {"Effect": "Allow", "NotAction": "s3:DeletObject", "Resource": "*"}},
            "NotAction 's3:DeletObject' fits no action",
        ),
        ({"Statement": {**ALLOW, "Principal": "*"}}, "Statement 1 has Principal"),
        ({"Statement": {"Effect": "Deny"}}, "Statement 1: Action, Resource is missing"),
        ({"Statement": {**ALLOW, "Effect": "allow"}}, "Effect is 'allow'; allowed are Allow, Deny"),
        ({"Statement": {**ALLOW, "Effect": []}}, "Effect is \\[\\]; allowed are Allow, Deny"),
        ({"Statement": {**ALLOW, "Action": []}}, "Action is \\[\\]; expected a text"),
        ({"Statement": {**ALLOW, "Action": [1]}}, "Action is \\[1\\]; expected a text"),
        ({"Statement": {**ALLOW, "Action": "GetObject"}}, "Action 'GetObject' is malformed"),
        ({"Statement": {**ALLOW, "Effect": "Deny", "Action": "s3:DeletObject"}}, "fits no action .*s3:DeleteObject,"),
        (
            {"Statement": {**ALLOW, "Effect": "Deny", "Action": "ecr:*"}},
            "fits no action .*of application-autoscaling, cloudwatch, iam, kms, logs, s3, sagemaker, sts",
        ),
        ({"Statement": {**ALLOW, "Resource": "bucket"}}, "Resource 'bucket' is not the ARN of a resource"),
        ({"Statement": {**ALLOW, "Resource": "arn:aws:s3:::${job.out}"}}, "unknown placeholder .*job.out.*job.name"),
        ({"Statement": {**ALLOW, "Resource": "arn:aws:s3:::${aws:PrincipalTag/team}/*"}}, "unknown placeholder"),
        (
            {"Statement": {**ALLOW, "Resource": "arn:aws:iam::${aws:PrincipalAccount}:role/R"}},
            "only stand in the last part",
        ),
        ({"Statement": {**ALLOW, "Resource": "arn:aws:s3:::${job.name"}}, "without its closing brace"),
    ],
)
def test_an_element_without_effect_is_an_error(document: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        read_policy(document)


TWICE = '{"Statement": {"Condition": {"StringEquals": {"a": "1"}, "StringEquals": {"b": "2"}}}}'


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "it is not JSON: Expecting property name"),
        (TWICE, "'StringEquals' occurs twice in one table"),
        ('{"Statement": [], "Statement": []}', "'Statement' occurs twice in one table"),
        ("[" * 3000, "nested more than 32 levels"),
        ("[" * 33 + "]" * 33, "nested more than 32 levels"),
        ('{"Statement":' * 40 + "1" + "}" * 40, "nested more than 32 levels"),
    ],
)
def test_a_text_of_which_a_part_would_be_lost_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        load_document(text)
    assert load_document('{"Statement": [{"Sid": "a"}, {"Sid": "a"}]}') == {"Statement": [{"Sid": "a"}, {"Sid": "a"}]}


@pytest.mark.parametrize("end", ["", "}"])
def test_a_text_made_of_open_placeholders_does_not_make_reading_slow(end: str) -> None:
    text = "arn:aws:s3:::" + "${" * 500_000 + end  # reading to the end for each of them would take an hour
    for members in ({"Resource": text}, {"Condition": {"StringEquals": {"aws:username": text}}}):
        with pytest.raises(ValueError, match="placeholder without its closing brace"):
            read_policy({"Statement": {**ALLOW, **members}})


@pytest.fixture
def settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "config.toml"
    monkeypatch.setenv("TIDEMILL_CONFIG", str(file))
    return file


def test_an_action_that_does_not_exist_here_may_be_allowed_and_allows_nothing_else() -> None:
    policy = read_policy({"Statement": {**ALLOW, "Action": ["ecr:*", "sagemaker:CreateNotebookInstance", "s3:Put*"]}})
    assert policy.rule(GET, {}) is Ruling.UNMENTIONED
    assert policy.rule(GET._replace(action="s3:PutObject"), {}) is Ruling.ALLOWED


def test_roles_are_read_from_the_settings_file(settings_file: Path) -> None:
    settings_file.write_text(
        """
        [roles.Reader]
        Statement = {Effect = "Allow", Action = "s3:GetObject", Resource = "arn:aws:s3:::bucket/*"}

        [[roles.Writer.Statement]]
        Effect = "Allow"
        Action = ["s3:*"]
        Resource = ["*"]

        [roles.Writer.Statement.Condition."ForAllValues:StringEquals"]
        "aws:TagKeys" = ["team"]
        """
    )
    roles = load_settings().roles
    assert sorted(roles) == ["Reader", "Writer"]
    put = GET._replace(action="s3:PutObject")
    assert roles["Writer"].rule(put, {}, {}.get) is Ruling.ALLOWED
    assert roles["Writer"].rule(put, {}, {"aws:tagkeys": ("other",)}.get) is Ruling.UNMENTIONED
    assert roles["Reader"].rule(GET, {}) is Ruling.ALLOWED
    assert roles["Reader"].rule(GET._replace(action="s3:PutObject"), {}) is Ruling.UNMENTIONED


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('[roles.R]\nStatement = {Effect = "Allow"}', "roles.R: .*Statement 1: Action, Resource is missing"),
        ('[roles."role/R"]\nStatement = []', "'role/R' is not the name of a role"),
        ("[roles.R]\nStatement = []\n[roles.r]\nStatement = []", "'R' and 'r' are the same"),
        ("[role.R]\nStatement = []", "role: there is no such setting"),
    ],
)
def test_a_mistake_in_the_settings_keeps_the_service_from_starting(settings_file: Path, text: str, fault: str) -> None:
    settings_file.write_text(text)
    with pytest.raises(ConfigurationError, match=fault):
        load_settings()
