"""Policies: matching of patterns, and evaluation of several statements."""

import fnmatch
import random
import re
import string

import pytest

from tidemill.core.globs import Sign, compile_glob
from tidemill.core.policy import (
    ActionPattern,
    IamPolicy,
    Permission,
    PolicyEffect,
    ResourcePattern,
    Ruling,
    Statement,
)

GET = Permission("s3:GetObject", "arn:aws:s3:::bucket/key")


def policy(*statements: tuple[PolicyEffect, str, str]) -> IamPolicy:
    return IamPolicy(
        tuple(
            Statement(effect, (ActionPattern(action),), (ResourcePattern.parse(resource),))
            for effect, action, resource in statements
        )
    )


def fits(pattern: str, resource: str, **values: str) -> bool:
    given = {f"job.{name}": value for name, value in values.items()}
    return ResourcePattern.parse(pattern).fits(resource, given.get) is True


def test_actions_without_a_statement_are_denied() -> None:
    assert IamPolicy(()).rule(GET, {}) is Ruling.UNMENTIONED
    assert policy((PolicyEffect.ALLOW, "s3:PutObject", "*")).rule(GET, {}) is Ruling.UNMENTIONED
    assert policy((PolicyEffect.ALLOW, "s3:*", "arn:aws:s3:::other/*")).rule(GET, {}) is Ruling.UNMENTIONED


def test_a_statement_allows() -> None:
    assert policy((PolicyEffect.ALLOW, "s3:Get*", "arn:aws:s3:::bucket/*")).rule(GET, {}) is Ruling.ALLOWED


def test_denying_wins_in_every_order_of_statements() -> None:
    allow, deny = (PolicyEffect.ALLOW, "*", "*"), (PolicyEffect.DENY, "s3:GetObject", "arn:aws:s3:::bucket/k*")
    assert policy(allow, deny).rule(GET, {}) is Ruling.DENIED
    assert policy(deny, allow).rule(GET, {}) is Ruling.DENIED
    assert policy(allow, deny).rule(Permission("s3:GetObject", "arn:aws:s3:::bucket/other"), {}) is Ruling.ALLOWED


@pytest.mark.parametrize(
    ("pattern", "action", "expected"),
    [
        ("*", "s3:GetObject", True),
        ("s3:*", "s3:GetObject", True),
        ("S3:getOBJECT", "s3:GetObject", True),
        ("s3:GetObject", "s3:GetObjectTagging", False),
        ("s3:Get*", "s3:GetObjectTagging", True),
        ("s3:?etObject", "s3:GetObject", True),
        ("s3:*Object", "s3:GetObjectTagging", False),
        ("sagemaker:*", "s3:GetObject", False),
    ],
)
def test_actions_are_compared_without_case(pattern: str, action: str, expected: bool) -> None:
    assert ActionPattern(pattern).fits(action) is expected


@pytest.mark.parametrize(
    ("pattern", "resource", "expected"),
    [
        ("*", "arn:aws:s3:::bucket/key", True),
        ("arn:aws:s3:::bucket", "arn:aws:s3:::bucket", True),
        ("arn:aws:s3:::bucket", "arn:aws:s3:::bucket/key", False),
        ("arn:aws:s3:::bucket/*", "arn:aws:s3:::bucket", False),
        ("arn:aws:s3:::bucket/*", "arn:aws:s3:::bucket/a/b:c\n", True),
        ("arn:aws:s3:::bucket/*", "arn:aws:s3:::bucket2/a", False),
        ("arn:aws:s3:::bucket/A*", "arn:aws:s3:::bucket/a", False),
        ("arn:aws:s3:::bucket/?", "arn:aws:s3:::bucket/ab", False),
        ("arn:aws:s3:::bucket/[ab]", "arn:aws:s3:::bucket/a", False),
        ("arn:aws:s3:::bucket/a.c", "arn:aws:s3:::bucket/abc", False),
        ("arn:aws:s3:::bucket/${*}", "arn:aws:s3:::bucket/*", True),
        ("arn:aws:s3:::bucket/${*}", "arn:aws:s3:::bucket/a", False),
        ("arn:aws:s3:::bucket/${?}${$}", "arn:aws:s3:::bucket/?$", True),
        ("arn:aws:sagemaker:*:*:training-job/a", "arn:aws:sagemaker:us-west-2:000000000000:training-job/a", True),
        ("arn:aws:sagemaker:*:*:training-job/a", "arn:aws:sagemaker:r:a:training-job/b:training-job/a", False),
        ("arn:aws:sagemaker:*:training-job/a:*:b", "arn:aws:sagemaker:r:0:training-job/a:x:b", False),
        ("arn:aws:*:us-*-2:*:model/*", "arn:aws:sagemaker:us-west-2:000000000000:model/m", True),
        ("arn:aws:*:us-?-2:*:model/*", "arn:aws:sagemaker:us-west-2:000000000000:model/m", False),
    ],
)
def test_a_sign_reaches_over_a_colon_in_the_last_part_of_an_arn_alone(
    pattern: str, resource: str, expected: bool
) -> None:
    assert fits(pattern, resource) is expected


def test_the_value_of_a_placeholder_is_literal() -> None:
    pattern = "arn:aws:s3:::${job.output}/*"
    assert fits(pattern, "arn:aws:s3:::b/out/*/job/x", output="b/out/*/job")
    assert not fits(pattern, "arn:aws:s3:::b/out/other/job/x", output="b/out/*/job")
    assert not fits(pattern, "arn:aws:s3:::b/out/ajob/x", output="b/out/?job")
    assert not fits(pattern, "arn:aws:s3:::b/out/joob/x", output="b/out/jo+b")
    assert fits(pattern, "arn:aws:s3:::b/${job.name}/x", output="b/${job.name}", name="other")


def test_a_placeholder_without_a_value_fits_nothing() -> None:
    assert not fits("arn:aws:s3:::${job.model_dir}/*", "arn:aws:s3:::/x")
    assert not fits("arn:aws:s3:::${job.model_dir}/*", "arn:aws:s3:::${job.model_dir}/x", name="a")
    deny = policy((PolicyEffect.ALLOW, "*", "*"), (PolicyEffect.DENY, "*", "arn:aws:s3:::${job.model_dir}/*"))
    assert deny.rule(GET, {}) is Ruling.ALLOWED


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("bucket/*", "is not the ARN of a resource"),
        ("", "is not the ARN of a resource"),
        ("arn:aws:s3:bucket", "is not the ARN of a resource"),
        ("arn:aws:s3:${job.name}::bucket", "only stand in the last part"),
    ],
)
def test_a_malformed_resource_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        ResourcePattern.parse(text)


def test_globs_agree_with_another_implementation_on_random_texts() -> None:
    source = random.Random(0)
    matched = 0
    for _ in range(20_000):
        pattern = "".join(source.choice("ab*?") for _ in range(source.randrange(8)))
        text = "".join(source.choice("ab") for _ in range(source.randrange(10)))
        tokens = [Sign(sign) if sign in "*?" else sign for sign in pattern]
        ours = re.fullmatch(compile_glob(tokens), text, re.DOTALL) is not None
        assert ours == fnmatch.fnmatchcase(text, pattern), (pattern, text)
        matched += ours
    assert matched > 1000


def test_a_text_made_against_a_pattern_does_not_make_it_slow() -> None:
    # A backtracking matcher would take more than 40 over 20 steps here, and so never finish.
    pattern = "arn:aws:s3:::" + "*a" * 20 + "*b"
    assert not fits(pattern, "arn:aws:s3:::" + "a" * 1024)
    assert fits(pattern, "arn:aws:s3:::" + "a" * 1024 + string.ascii_lowercase + "b")
