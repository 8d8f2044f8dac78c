"""State transitions of endpoints, and their stored form."""

from dataclasses import replace

from tidemill.core.hosting import Deployment, Endpoint, EndpointStatus, Instance, Variant


def deployment(config: str, *job_ids: str) -> Deployment:
    instances = tuple(Instance(job_id=each, log_stream=f"v/{each}", created_ms=1) for each in job_ids)
    variant = Variant(request={"VariantName": "v"}, model={}, count=len(job_ids), instances=instances)
    return Deployment(config_name=config, variants=(variant,), begun_ms=1)


def serving(*job_ids: str) -> Endpoint:
    endpoint = Endpoint(name="e", arn="arn", endpoint_id="0e", created_ms=1, starting=deployment("one", *job_ids))
    for instance in endpoint.instances:
        endpoint = endpoint.made_ready(instance)
    return endpoint.promoted()


def ids(deployment: Deployment | None) -> list[str]:
    return [each.job_id for each in deployment.instances] if deployment else []


def test_an_endpoint_reads_back_as_it_was_stored() -> None:
    endpoint = replace(serving("aa", "bb").retired(serving("aa", "bb").instances[0]), starting=deployment("two", "cc"))
    assert Endpoint.from_document(endpoint.to_document()) == endpoint


def test_a_new_deployment_keeps_the_instances_that_it_shares() -> None:
    before = serving("aa", "bb")
    after = replace(before, starting=deployment("one", "aa", "cc")).promoted()
    assert ids(after.serving) == ["aa", "cc"]
    assert [each.job_id for each in after.retiring] == ["bb"]
    assert after.starting is None


def test_a_rollback_removes_only_instances_that_were_started_for_the_deployment() -> None:
    before = serving("aa")
    after = replace(before, starting=deployment("two", "aa", "bb"), status=EndpointStatus.UPDATING).rolled_back("no")
    assert (after.status, after.failure_reason, after.config_name) == (EndpointStatus.IN_SERVICE, "no", "one")
    assert ids(after.serving) == ["aa"]
    assert [each.job_id for each in after.retiring] == ["bb"]


def test_a_creation_that_is_rolled_back_has_failed_and_shows_its_configuration() -> None:
    created = Endpoint(name="e", arn="arn", endpoint_id="0e", created_ms=1, starting=deployment("one", "aa"))
    failed = created.rolled_back("x" * 2000)
    assert (failed.status, failed.config_name) == (EndpointStatus.FAILED, "one")
    assert failed.failure_reason == "x" * 1024
    assert [each.job_id for each in failed.retiring] == ["aa"]
    assert ids(failed.starting) == []


def test_an_instance_that_retires_is_missing_until_another_is_added() -> None:
    endpoint = serving("aa", "bb")
    lost = endpoint.instances[0]
    after = endpoint.retired(lost)
    assert after.retired(lost) == after, "twice changes nothing"
    assert after.serving is not None
    assert (after.serving.variants[0].missing, after.serving.complete) == (1, False)
    assert after.owns == {"aa", "bb"}
    assert after.cleared(lost).owns == {"bb"}


def test_a_stored_endpoint_of_an_earlier_version_keeps_its_instances() -> None:
    document = {
        "name": "e",
        "arn": "arn",
        "config_name": "one",
        "instance_id": "00ff",
        "variant": {"VariantName": "v", "InitialInstanceCount": 2},
        "model": {"PrimaryContainer": {"Image": "i"}},
        "log_streams": ["v/0", "v/1"],
        "created_ms": 1,
        "status": "InService",
        "failure_reason": "",
    }
    endpoint = Endpoint.from_document(document)
    assert (endpoint.endpoint_id, endpoint.config_name) == ("00ff", "one")
    assert [each.key for each in endpoint.instances] == [("00ff", 0), ("00ff", 1)]
    assert endpoint.serving is not None
    assert endpoint.serving.complete
    creating = Endpoint.from_document({**document, "status": "Creating"})
    assert (creating.serving, ids(creating.starting)) == (None, ["00ff", "00ff"])


def test_the_failure_reason_of_an_endpoint_has_at_most_1024_characters() -> None:
    for ended in (serving("aa").failed("x" * 1025), serving("aa").rolled_back("x" * 1025)):
        assert ended.failure_reason == "x" * 1024
    assert serving("aa").failed("x" * 1024).failure_reason == "x" * 1024
