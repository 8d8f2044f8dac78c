"""The rights that a model's role gives its batch transform jobs and asynchronous requests."""

import pytest

from tidemill.control.transform.rights import NotAllowed, RoleRights
from tidemill.core.names import S3Uri
from tidemill.core.policy_document import read_policy
from tidemill.core.roles import Roles

ROLE = "arn:aws:iam::000000000000:role/service-role/Reader"


def rights(*, model: dict[str, object], policy: dict[str, object] | None = None) -> RoleRights:
    roles = Roles({"Reader": read_policy(policy)} if policy else {})
    return RoleRights(
        roles,
        model=model,
        arn="arn:aws:sagemaker:us-west-2:000000000000:transform-job/night",
        output="s3://results/night/out",
    )


@pytest.mark.parametrize("model", [{"ExecutionRoleArn": ROLE}, {}])
def test_the_built_in_policy_reads_everywhere_and_writes_below_the_output_alone(model: dict[str, object]) -> None:
    allowed = rights(model=model)
    allowed.check("s3:GetObject", S3Uri.parse("s3://anywhere/data.csv"))
    allowed.check("s3:PutObject", S3Uri.parse("s3://results/night/out/data.csv.out"))
    for outside in ("s3://results/night/other", "s3://results/night/outside/data.csv.out", "s3://anywhere/data.csv"):
        with pytest.raises(NotAllowed, match="may not s3:PutObject it"):
            allowed.check("s3:PutObject", S3Uri.parse(outside))


def test_the_policy_of_the_models_role_replaces_it() -> None:
    policy = {"Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::mine/*"}]}
    allowed = rights(model={"ExecutionRoleArn": ROLE}, policy=policy)
    allowed.check("s3:GetObject", S3Uri.parse("s3://mine/data.csv"))
    with pytest.raises(NotAllowed, match=r"s3://theirs/data.csv: AccessDenied: the role 'Reader' of the model may not"):
        allowed.check("s3:GetObject", S3Uri.parse("s3://theirs/data.csv"))
    with pytest.raises(NotAllowed, match="may not s3:PutObject it"):
        allowed.check("s3:PutObject", S3Uri.parse("s3://results/night/out/data.csv.out"))
