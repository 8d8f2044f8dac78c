"""WaitForChanges by a client: what a viewer hears, and what its policy hides."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tidemill.wire.signing.credentials import Credential

MODELS = [{"Kind": "model"}]
CONTAINER = {"Image": "x/tensorflow-inference:2.19.0-cpu", "ModelDataUrl": "s3://data/model.tar.gz"}
ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"


@pytest.fixture
def create(sagemaker: Any) -> Any:
    """Return a function that creates a model."""

    def create(name: str) -> None:
        sagemaker.create_model(ModelName=name, PrimaryContainer=CONTAINER, ExecutionRoleArn=ROLE)

    return create


def begin(client: Any, interests: list[dict[str, Any]]) -> str:
    answer = client.wait_for_changes(Interests=interests)
    assert answer["Changes"] == [] and answer["Everything"] is False
    return answer["Token"]


def test_a_viewer_hears_which_resources_have_changed_and_waits_until_one_does(
    own: Any, sagemaker: Any, create: Any
) -> None:
    token = begin(own, MODELS)
    create("a")
    answer = own.wait_for_changes(Token=token, Interests=MODELS)
    assert answer["Changes"] == [{"Kind": "model", "Names": ["a"]}]
    asked = threading.Event()
    own.meta.events.register_last("request-created.tidemill.WaitForChanges", lambda **_: asked.set())
    with ThreadPoolExecutor(1) as threads:
        only_c = [{"Kind": "model", "Names": ["c"]}, {"Kind": "endpoint-config"}]
        waiting = threads.submit(own.wait_for_changes, Token=answer["Token"], Interests=only_c)
        asked.wait(60)
        create("b")
        create("c")
        found = waiting.result(60)
        assert found["Changes"] == [{"Kind": "model", "Names": ["c"]}]
    sagemaker.delete_model(ModelName="c")
    assert own.wait_for_changes(Token=found["Token"], Interests=MODELS)["Changes"][0]["Names"] == ["c"]
    none = own.wait_for_changes(Token=found["Token"], Interests=[{"Kind": "endpoint"}], WaitSeconds=0)
    assert (none["Changes"], none["Everything"]) == ([], False)
    assert own.wait_for_changes(Token="of-an-earlier-start.3", Interests=MODELS)["Everything"] is True


def test_a_viewer_hears_only_of_what_its_policy_lets_it_describe(
    own: Any, iam: Any, clients: Any, create: Any, restricted: Any
) -> None:
    key = iam.create_access_key(UserName="ann")["AccessKey"]
    policy = {
        "Statement": {
            "Effect": "Allow",
            "Action": "sagemaker:DescribeModel",
            "Resource": "arn:aws:sagemaker:*:*:model/ann-*",
        }
    }
    iam.put_user_policy(UserName="ann", PolicyName="p", PolicyDocument=json.dumps({"Version": "2012-10-17", **policy}))
    ann = clients("tidemill", Credential(key["AccessKeyId"], key["SecretAccessKey"]))
    token = begin(ann, MODELS)
    create("secret")
    both = [{"Kind": "model", "Names": ["secret", "ann-1"]}]
    assert ann.wait_for_changes(Token=token, Interests=both, WaitSeconds=0)["Changes"] == []
    create("ann-1")
    assert ann.wait_for_changes(Token=token, Interests=MODELS)["Changes"] == [{"Kind": "model", "Names": ["ann-1"]}]
    assert len(own.wait_for_changes(Token=token, Interests=MODELS)["Changes"][0]["Names"]) == 2
    nobody = restricted("tidemill")
    assert nobody.wait_for_changes(Token=token, Interests=MODELS, WaitSeconds=0)["Changes"] == []


@pytest.mark.parametrize(
    "members",
    [
        {"Interests": [{"Kind": "credential"}]},
        {"Interests": MODELS, "WaitSeconds": 31},
    ],
)
def test_what_cannot_be_looked_at_is_refused(own: Any, refusal: Any, members: dict[str, Any]) -> None:
    status, code, _ = refusal(own.wait_for_changes, **members)
    assert (status, code) == (400, "ValidationException")
