"""The path at which a job gets its keys, and the variable that leads AWS's SDKs to it."""

from urllib.parse import urlsplit

import pytest

from tidemill.core.container_credentials import VARIABLE, key_id_of, located, opens, path_of

PATH = path_of("ASIA0", "token")


def test_a_path_opens_one_key_only() -> None:
    assert key_id_of(PATH) == "ASIA0"
    assert opens(PATH, access_key_id="ASIA0", session_token="token")
    for other in (
        PATH[:-1],
        f"{PATH}0",
        PATH.replace("ASIA0", "ASIA1"),
        path_of("ASIA0", "token2"),
        "/v2/credentials/ASIA0",
    ):
        assert not opens(other, access_key_id="ASIA0", session_token="token")
    assert [key_id_of(path) for path in ("/", "/healthz", "/v2", "/v2/credentials/", "/bucket/v2/credentials/x-y")] == [
        ""
    ] * 5


@pytest.mark.parametrize("service", ["http://127.0.0.1:8911", "http://service.example:80"])
def test_what_sdks_put_before_it_leads_to_the_service(service: str) -> None:
    variables = located({"AWS_ENDPOINT_URL": service, VARIABLE: PATH, "OTHER": "x"})
    url = urlsplit(f"http://169.254.170.2{variables[VARIABLE]}")
    expected = urlsplit(service)
    assert (url.hostname, url.port, url.path) == (expected.hostname, expected.port, PATH)
    assert variables["OTHER"] == "x"


def test_it_is_left_out_where_it_cannot_lead_to_the_service_and_kept_if_it_is_the_users() -> None:
    assert located({"AWS_ENDPOINT_URL": "https://service.example", VARIABLE: PATH}) == {
        "AWS_ENDPOINT_URL": "https://service.example"
    }
    assert located({VARIABLE: PATH}) == {}
    assert located({VARIABLE: "/mine"}) == {VARIABLE: "/mine"}
