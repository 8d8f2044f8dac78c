"""When the servers of serverless variants are stopped, and how many requests they accept."""

import pytest

from tidemill.control.endpoints.serverless import Serverless
from tidemill.core.hosting import Instance, Variant
from tidemill.errors import AwsError

READY = (Instance(job_id="00aa", log_stream="v/i", created_ms=0, ready=True),)


class SetClock:
    """A clock whose time a test sets."""

    s = 0.0

    def now_ms(self) -> int:
        return int(self.s * 1000)

    def monotonic_s(self) -> float:
        return self.s


def variant(*instances: Instance, **config: int) -> Variant:
    return Variant(
        request={"VariantName": "v", "ServerlessConfig": {"MaxConcurrency": 2, **config}},
        model={},
        instances=instances,
    )


def test_a_variant_is_idle_when_it_had_no_request_for_long_enough() -> None:
    clock = SetClock()
    serverless = Serverless(clock, idle_s=10)
    awake = variant(*READY)
    assert not serverless.idle("e", awake)
    clock.s = 9
    with serverless.admitted("e", awake):
        clock.s = 100
        assert not serverless.idle("e", awake)
    assert not serverless.idle("e", awake)
    clock.s = 109.9
    assert not serverless.idle("e", awake)
    clock.s = 110
    assert serverless.idle("e", awake)
    assert not serverless.idle("e", variant())


def test_a_server_that_starts_is_not_idle() -> None:
    clock = SetClock()
    serverless = Serverless(clock, idle_s=10)
    starting = variant(Instance(job_id="00aa", log_stream="v/i", created_ms=0))
    for clock.s in (0, 20, 40):
        assert not serverless.idle("e", starting)


def test_provisioned_servers_and_variants_with_instances_are_never_idle() -> None:
    clock = SetClock()
    serverless = Serverless(clock, idle_s=10)
    provisioned = variant(*READY, ProvisionedConcurrency=1)
    ordinary = Variant(request={"VariantName": "v"}, model={}, instances=READY)
    for clock.s in (0, 1000):
        assert not serverless.idle("e", provisioned)
        assert not serverless.idle("e", ordinary)
    with serverless.admitted("e", ordinary), serverless.admitted("e", ordinary), serverless.admitted("e", ordinary):
        pass


def test_requests_beyond_max_concurrency_are_throttled() -> None:
    serverless = Serverless(SetClock(), idle_s=10)
    with serverless.admitted("e", variant()), serverless.admitted("e", variant()):
        with (
            pytest.raises(AwsError, match="answers 2 requests, its MaxConcurrency") as caught,
            serverless.admitted("e", variant()),
        ):
            pass
        assert (caught.value.code, caught.value.status) == ("ThrottlingException", 429)
        with serverless.admitted("another", variant()):
            pass
    with serverless.admitted("e", variant()):
        pass
