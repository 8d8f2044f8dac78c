"""The address for other machines: only with TLS, and for users with their own keys."""

import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import trustme
from botocore.config import Config
from botocore.exceptions import ClientError, SSLError

from tidemill.errors import ConfigurationError
from tidemill.server.discovery import find_service
from tidemill.server.public_address import PublicAddress
from tidemill.server.state import StateDirectory
from tidemill.settings import Settings
from tidemill.testing import Service


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the certificate of an authority, and one for 127.0.0.1 with its key."""
    directory = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(directory / "ca.pem")
    certificate.private_key_pem.write_to_path(directory / "key.pem")
    (directory / "key.pem").chmod(0o600)
    for each in certificate.cert_chain_pems:
        each.write_to_path(directory / "certificate.pem", append=True)
    return directory


@pytest.fixture(scope="module")
def service(files: Path) -> Iterator[Service]:
    settings = {"tls_certificate": files / "certificate.pem", "tls_key": files / "key.pem", "port": 0}
    with Service(settings=settings) as service:
        yield service


@pytest.fixture(scope="module")
def public_url(service: Service) -> str:
    record = find_service(StateDirectory(service.state_dir))
    assert record is not None
    return record.public_url


def keys(service: Service, *words: str) -> str:
    """Return the output of `tidemill keys`."""
    command = [sys.executable, "-m", "tidemill.cli", "keys", *words, "--state-dir", str(service.state_dir)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def ann(service: Service) -> Iterator[dict[str, str]]:
    """Yield the variables of a user, as `tidemill keys add` prints them."""
    lines = keys(service, "add", "ann").splitlines()
    yield dict(line.removeprefix("export ").split("=", 1) for line in lines)
    if "ann" in keys(service, "list"):
        keys(service, "revoke", "ann")


def client(name: str, variables: dict[str, str], *, verify: Path | None = None) -> Any:
    return boto3.Session(
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        region_name="us-west-2",
    ).client(
        name,
        endpoint_url=variables["AWS_ENDPOINT_URL"],
        verify=str(verify) if verify else None,
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
    )


def test_a_user_works_over_tls_with_a_key_until_it_is_revoked(
    service: Service, public_url: str, files: Path, ann: dict[str, str]
) -> None:
    assert public_url.startswith("https://127.0.0.1:")
    assert ann["AWS_ENDPOINT_URL"] == public_url
    s3 = client("s3", ann, verify=files / "ca.pem")
    s3.create_bucket(Bucket="data")
    content = os.urandom(20 * 1024 * 1024)
    s3.put_object(Bucket="data", Key="large", Body=content)
    assert s3.get_object(Bucket="data", Key="large")["Body"].read() == content
    upload = {"Bucket": "data", "Key": "parts"}
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    part = {"PartNumber": 1, "ETag": s3.upload_part(**upload, PartNumber=1, Body=b"one")["ETag"]}
    completed = s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": [part]})
    assert completed["Location"] == f"{public_url}/data/parts"
    assert client("sts", ann, verify=files / "ca.pem").get_caller_identity()["Arn"].endswith(":user/ann")
    assert ann["AWS_ACCESS_KEY_ID"] in keys(service, "list")
    keys(service, "revoke", "ann")
    with pytest.raises(ClientError) as refused:
        s3.list_buckets()
    assert refused.value.response["Error"]["Code"] == "InvalidAccessKeyId"


def test_a_key_is_made_with_a_policy(service: Service, tmp_path: Path) -> None:
    policy = {"Statement": {"Effect": "Allow", "Action": "sagemaker:ListModels", "Resource": "*"}}
    (tmp_path / "bob.json").write_text(json.dumps(policy))
    lines = keys(service, "add", "bob", "--policy", str(tmp_path / "bob.json")).splitlines()
    variables = dict(line.removeprefix("export ").split("=", 1) for line in lines)
    pair = {name: variables[name.upper()] for name in ("aws_access_key_id", "aws_secret_access_key")}
    session = boto3.Session(**pair, region_name="us-west-2")
    sagemaker = session.client("sagemaker", endpoint_url=service.environment["AWS_ENDPOINT_URL"])
    assert sagemaker.list_models()["Models"] == []
    with pytest.raises(ClientError, match="the policy of the user 'bob' does not allow it"):
        sagemaker.list_endpoints()
    assert keys(service, "list").splitlines()[-1].split()[-1] == "tidemill"


def test_the_certificate_is_checked_and_plain_requests_get_nothing(
    service: Service, public_url: str, ann: dict[str, str]
) -> None:
    with pytest.raises(SSLError):
        client("sts", ann).get_caller_identity()
    with pytest.raises((urllib.error.URLError, OSError)):
        urllib.request.urlopen(public_url.replace("https", "http") + "/healthz", timeout=30)
    assert service.client("sts").get_caller_identity()["Account"], "the address of this machine answers as ever"


def test_old_versions_of_tls_are_refused(files: Path) -> None:
    settings = Settings(tls_certificate=files / "certificate.pem", tls_key=files / "key.pem")
    address = PublicAddress.of(settings)
    assert address is not None
    assert address.tls is not None
    assert address.tls.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.10", "example.com"])
def test_a_host_that_others_could_reach_needs_tls(host: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a loopback address.*tls_certificate and tls_key.*ssh -L"):
        PublicAddress.of(Settings(host=host))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.8.0.1"])
def test_loopback_needs_no_certificate(host: str) -> None:
    assert PublicAddress.of(Settings(host=host)) is None


def test_plain_http_for_other_machines_must_be_allowed_explicitly() -> None:
    address = PublicAddress.of(Settings(host="192.168.1.10", allow_plain_http=True))
    assert address is not None
    assert address.tls is None


def test_a_wildcard_needs_names(files: Path) -> None:
    tls = {"tls_certificate": files / "certificate.pem", "tls_key": files / "key.pem"}
    with pytest.raises(ConfigurationError, match="name those that clients use in the setting allowed_hosts"):
        PublicAddress.of(Settings(host="0.0.0.0", **tls))
    assert PublicAddress.of(Settings(host="0.0.0.0", allowed_hosts=("tidemill.example",), **tls)) is not None


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o604])
def test_a_key_that_others_may_read_is_refused_with_what_to_do(files: Path, tmp_path: Path, mode: int) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes((files / "key.pem").read_bytes())
    key.chmod(mode)
    settings = Settings(tls_certificate=files / "certificate.pem", tls_key=key)
    with pytest.raises(ConfigurationError, match=rf"tls_key {key} has mode {mode:04o}.*chmod 600 {key}"):
        PublicAddress.of(settings)
    for mode_of_debian in (0o400, 0o640):
        key.chmod(mode_of_debian)
        assert PublicAddress.of(settings) is not None


def test_a_certificate_that_cannot_be_used_is_named(files: Path) -> None:
    certificate, no_key = files / "certificate.pem", files / "ca.pem"
    no_key.chmod(0o600)
    with pytest.raises(ConfigurationError, match="tls_key is missing"):
        PublicAddress.of(Settings(tls_certificate=certificate))
    with pytest.raises(ConfigurationError, match=r"there is no file /no/key\.pem"):
        PublicAddress.of(Settings(tls_certificate=certificate, tls_key="/no/key.pem"))
    with pytest.raises(ConfigurationError, match="cannot be used"):
        PublicAddress.of(Settings(tls_certificate=certificate, tls_key=no_key))
