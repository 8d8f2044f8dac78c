"""Clients that send other forms than boto3 over plain HTTP: boto3 over TLS, minio-py, AWS's common runtime."""

import io
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import minio
import pytest
import toys
import urllib3
from botocore.config import Config


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory, need: Callable[[str], None]) -> tuple[Path, Path]:
    need("openssl")
    directory = tmp_path_factory.mktemp("tls")
    key, file = directory / "key.pem", directory / "cert.pem"
    options = ["-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", *options, *names, "-keyout", str(key), "-out", str(file)]
    subprocess.run(command, check=True, capture_output=True)
    return key, file


@pytest.fixture(scope="module")
def tls_s3(toy: toys.Toys, certificate: tuple[Path, Path]) -> Iterator[Any]:
    key, file = certificate
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(file, key)
    with toys.serving(toys.toy_gateway(toy), tls=tls) as port:
        client = boto3.client(
            "s3",
            endpoint_url=f"https://127.0.0.1:{port}",
            verify=str(file),
            aws_access_key_id=toys.KEY,
            aws_secret_access_key=toys.SECRET,
            region_name="us-west-2",
            config=Config(retries={"total_max_attempts": 1}),
        )
        yield client
        client.close()


class Unseekable(io.RawIOBase):
    """A body that can be read only once."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._file.readinto(buffer)


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
@pytest.mark.parametrize("seekable", [True, False])
def test_boto3_over_tls_sends_chunks_with_a_trailer(
    tls_s3: Any, toy: toys.Toys, algorithm: str, seekable: bool
) -> None:
    data = b"0123456789" * 50_000
    body: Any = io.BytesIO(data) if seekable else Unseekable(data)
    reply = tls_s3.put_object(
        Bucket="bucket", Key="over tls", Body=body, ChecksumAlgorithm=algorithm, ContentEncoding="x-mine"
    )
    _, request, context = toy.seen[-1]
    assert context.headers["x-amz-content-sha256"] == "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
    assert request["ContentEncoding"] == "x-mine"
    assert request.get("ContentLength") == (len(data) if seekable else None)
    assert reply[f"Checksum{algorithm}"]
    assert tls_s3.get_object(Bucket="bucket", Key="over tls")["Body"].read() == data


def test_minio_py_puts_gets_and_lists(port: int) -> None:
    with urllib3.PoolManager(retries=False) as http:
        client = minio.Minio(
            endpoint=f"127.0.0.1:{port}",
            access_key=toys.KEY,
            secret_key=toys.SECRET,
            secure=False,
            region="us-west-2",
            http_client=http,
        )
        data = b"ab" * 3_000_000
        client.put_object(bucket_name="shared", object_name="ü a+b", data=io.BytesIO(data), length=len(data))
        client.put_object(
            bucket_name="shared", object_name="parts", data=io.BytesIO(data), length=-1, part_size=5 * 1024 * 1024
        )
        for name in ("ü a+b", "parts"):
            reply = client.get_object(bucket_name="shared", object_name=name)
            assert reply.read() == data
            reply.close()
        assert {entry.object_name for entry in client.list_objects(bucket_name="shared")} == {"ü a+b", "parts"}
        assert [bucket.name for bucket in client.list_buckets()] == ["b<1>"]
        assert client.bucket_exists(bucket_name="shared")
        assert not client.bucket_exists(bucket_name="absent")
        assert list(client.remove_objects(bucket_name="shared", delete_object_list=[])) == []
        url = client.presigned_get_object(bucket_name="shared", object_name="ü a+b")
        assert http.request("GET", url).data == data
