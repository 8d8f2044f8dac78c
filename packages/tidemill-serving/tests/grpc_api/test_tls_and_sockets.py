"""TLS, mutual TLS, unix sockets and the arguments of channels, by gRPC's own client."""

import datetime
import gzip
import ipaddress
import os
import socket
import ssl
import stat
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from frames_of_clients import PREDICT, SETTINGS, RawClient, block, prefixed
from tensorflow_serving.apis import predict_pb2

from tidemill_serving.errors import StartFailed
from tidemill_serving.grpc_api.listener import bind_all

Client = Any  # of conftest.py
DEADLINE_S = 60


class Authority:
    """Signs certificates. All texts are PEM."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._certificate(self._name, self._key.public_key(), is_authority=True)
        self.certificate = made.public_bytes(serialization.Encoding.PEM)

    def signed(self, name: str) -> tuple[bytes, bytes]:
        """Return a new key and its certificate, for that name and for 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._certificate(subject, key.public_key(), is_authority=False)
        form = serialization.PrivateFormat.PKCS8
        text = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        return text, made.public_bytes(serialization.Encoding.PEM)

    def _certificate(self, subject: x509.Name, key: Any, *, is_authority: bool) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )


def config_text(**fields: bytes | bool) -> str:
    """Return an SSLConfig in text form."""
    lines = []
    for name, value in fields.items():
        if isinstance(value, bytes):
            escaped = value.decode().replace("\n", "\\n")
            lines.append(f'{name}: "{escaped}"')
        else:
            lines.append(f"{name}: {str(value).lower()}")
    return "\n".join(lines)


@contextmanager
def predicting(target: str, credentials: Any = None, options: Any = ()) -> Iterator[Callable[..., Any]]:
    """Yield a function that sends Predict of half_plus."""
    make = grpc.secure_channel if credentials is not None else grpc.insecure_channel
    arguments = (target, credentials) if credentials is not None else (target,)
    with make(*arguments, options=options) as channel:
        call = channel.unary_unary(
            PREDICT, predict_pb2.PredictRequest.SerializeToString, predict_pb2.PredictResponse.FromString
        )

        def predict(*values: float, **more: Any) -> list[float]:
            return list(call(request(*values), timeout=DEADLINE_S, **more).outputs["y"].float_val)

        yield predict


def request(*values: float) -> predict_pb2.PredictRequest:
    made = predict_pb2.PredictRequest()
    made.model_spec.name = "half"
    made.inputs["x"].dtype = 1
    made.inputs["x"].float_val.extend(values)
    made.inputs["x"].tensor_shape.dim.add(size=len(values))
    return made


def connected(path: Path) -> RawClient:
    """Connect to a unix socket, whose path may be longer than an address."""
    sock = socket.socket(socket.AF_UNIX)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    sock.connect(f"/proc/self/fd/{directory}/{path.name}")
    os.close(directory)
    return RawClient(0, sock=sock)


def outputs(raw: RawClient, stream: int, *, decompress: Callable[[bytes], bytes] | None, encoding: str) -> list[float]:
    """Read an answer of Predict, which must be compressed like that."""
    fields, data = raw.answer(stream)
    assert (fields["grpc-status"], fields.get("grpc-encoding", "")) == ("0", encoding)
    assert data[0] == (decompress is not None)
    message = data[5:] if decompress is None else decompress(data[5:])
    return list(predict_pb2.PredictResponse.FromString(message).outputs["y"].float_val)


@pytest.mark.parametrize(
    ("asked", "accepted", "encoding"),
    [
        ("gzip", "identity, deflate, gzip", "gzip"),
        ("deflate", "gzip,deflate", "deflate"),
        ("gzip", "identity, deflate", ""),
        ("gzip", "", ""),
        ("identity", "gzip", ""),
    ],
)
def test_answers_are_compressed_as_requests_are_if_the_client_accepts_it(
    server: Any, asked: str, accepted: str, encoding: str
) -> None:
    compress = {"gzip": gzip.compress, "deflate": zlib.compress, "identity": bytes}[asked]
    decompress = {"gzip": gzip.decompress, "deflate": zlib.decompress, "": None}[encoding]
    large, small = request(*range(3000)), request(1.0, 2.0)
    headers = block(grpc_encoding=asked, **({"grpc_accept_encoding": accepted} if accepted else {}))
    with closing(RawClient(server.grpc_port)) as raw:
        answers = []
        for stream, each, how, name in ((1, large, decompress, encoding), (3, small, None, "")):
            each.model_spec.name = "half_plus"
            message = compress(each.SerializeToString())
            raw.call(stream, prefixed(message, flag=int(asked != "identity")), headers)
            answers.append(outputs(raw, stream, decompress=how, encoding=name))
        assert answers == [[each / 2 + 3 for each in range(3000)], [3.5, 4.0]]


def refusal(call: Callable[[], Any]) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as failure:
        call()
    return failure.value.code()


def test_mutual_tls_on_the_port_and_the_socket(start: Any, models: Path, tmp_path: Path) -> None:
    authority, stranger = Authority("ours"), Authority("another")
    key, certificate = authority.signed("localhost")
    text = config_text(server_key=key, server_cert=certificate, custom_ca=authority.certificate, client_verify=True)
    (tmp_path / "ssl.config").write_text(text)
    path = tmp_path / "grpc.sock"
    arguments = ("--model_base_path", str(models / "half_plus"), "--model_name=half", "--grpc-port", "0")
    server = start(
        tmp_path, arguments=(*arguments, f"--ssl_config_file={tmp_path / 'ssl.config'}", f"--grpc_socket_path={path}")
    )
    assert "tls=true" in server.line("grpc.ready")
    own = [("grpc.ssl_target_name_override", "localhost")]
    right = grpc.ssl_channel_credentials(authority.certificate, *authority.signed("client"))
    for target in (f"127.0.0.1:{server.grpc_port}", f"unix:{path}"):
        with predicting(target, right, own) as predict:
            assert predict(1.0, 2.0) == [3.5, 4.0]
            assert len(predict(*range(40_000))) == 40_000
    target = f"127.0.0.1:{server.grpc_port}"
    for wrong in (
        grpc.ssl_channel_credentials(authority.certificate),
        grpc.ssl_channel_credentials(authority.certificate, *stranger.signed("client")),
        grpc.ssl_channel_credentials(stranger.certificate, *authority.signed("client")),
        None,
    ):
        with predicting(target, wrong) as predict:
            assert refusal(lambda call=predict: call(1.0)) is grpc.StatusCode.UNAVAILABLE
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    context.set_alpn_protocols(["h2"])
    (tmp_path / "client.pem").write_bytes(b"".join(authority.signed("client")))
    context.load_cert_chain(tmp_path / "client.pem")
    with ExitStack() as cleanup:
        for _ in range(20):  # handshakes that are never finished
            cleanup.enter_context(socket.create_connection(("127.0.0.1", server.grpc_port), timeout=DEADLINE_S))
        raw = cleanup.enter_context(socket.create_connection(("127.0.0.1", server.grpc_port), timeout=DEADLINE_S))
        wrapped = cleanup.enter_context(context.wrap_socket(raw, server_hostname="localhost"))
        assert wrapped.selected_alpn_protocol() == "h2"
        wrapped.sendall(b"GET / HTTP/1.1\r\n\r\n")
        while wrapped.recv(1000):  # until the server has closed
            pass
        with predicting(target, right) as predict:
            assert len(predict(1.0)) == 1
    assert server.terminate() == 0
    assert not path.exists()


def test_a_unix_socket_alone_and_arguments_of_channels(start: Any, models: Path, tmp_path: Path) -> None:
    path = tmp_path / ("d" * 100) / "grpc.sock"
    path.parent.mkdir()
    channel = (
        "grpc.max_receive_message_length=300000,grpc.max_send_message_length=250000, grpc.max_concurrent_streams=2,"
        "grpc.default_compression_algorithm=2,grpc.so_reuseport=0,grpc.none=1"
    )
    arguments = ("--model_base_path", str(models / "half_plus"), "--model_name=half", "--grpc_socket_path", str(path))
    server = start(tmp_path, arguments=(*arguments, f"--grpc_channel_arguments={channel}"))
    assert server.grpc_port == 0
    assert "one process listens on the port" in server.line("grpc.argument_ignored", "grpc.so_reuseport")
    assert "the server has no such setting" in server.line("grpc.argument_ignored", "grpc.none")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    short = tmp_path / "short.sock"
    short.symlink_to(path)  # gRPC's client takes no address of more than 108 bytes
    with predicting(f"unix:{short}") as predict:
        assert predict(*range(50_000)) == predict(*range(50_000), compression=grpc.Compression.Deflate)
        assert len(predict(*range(62_000))) == 62_000
        for count, text in ((70_000, "Sent message larger than max"), (80_000, "Received message larger than max")):
            with pytest.raises(grpc.RpcError, match=text) as failure:
                predict(*range(count))
            assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    with closing(connected(path)) as raw:
        offered = raw.find(SETTINGS).payload
        assert (3, 2) in struct.iter_unpack(">HI", offered)  # SETTINGS_MAX_CONCURRENT_STREAMS
        accepting = block(grpc_accept_encoding="identity, gzip")
        raw.call(1, prefixed(request(*range(5000)).SerializeToString()), accepting)
        assert outputs(raw, 1, decompress=gzip.decompress, encoding="gzip") == [each / 2 + 3 for each in range(5000)]
    server.process.terminate()
    assert server.wait() == 0, server.log
    assert not path.exists()


WRONG = {
    "": "server_key and server_cert are needed",
    'server_key: "a" server_cert: "b"': "is no fitting PEM text",
    "server_key: PRIVATE": "holds no SSLConfig in text form",
    "{key} client_verify: true": "client_verify needs custom_ca",
    '{key} custom_ca: "none"': "is no fitting PEM text",
    "{other}": "is no fitting PEM text",
}


def test_a_wrong_configuration_of_tls_is_told_without_the_key(tmp_path: Path) -> None:
    authority = Authority("ours")
    key, certificate = authority.signed("localhost")
    texts = {
        "{key}": config_text(server_key=key, server_cert=certificate),
        "{other}": config_text(server_key=authority.signed("localhost")[0], server_cert=certificate),
    }
    files = [tmp_path / f"{number}.config" for number in range(len(WRONG) + 1)]
    for file, text in zip(files, (*WRONG, "{key}"), strict=True):
        for name, replacement in texts.items():
            text = text.replace(name, replacement)
        file.write_text(text)
    script = (
        "import sys; from pathlib import Path; from tidemill_serving.errors import StartFailed;"
        " from tidemill_serving.tls import read_tls\n"
        "for name in sys.argv[1:]:\n try:\n  print(read_tls(Path(name)))\n except StartFailed as error:\n  print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", script, *map(str, files)], capture_output=True, text=True, check=True)
    told = ran.stdout.splitlines()
    for file, line, reason in zip(files, told, (*WRONG.values(), "SSLContext"), strict=True):
        assert reason in line
        assert str(file) in line or reason == "SSLContext"
    assert "PRIVATE" not in ran.stdout


def test_ports_that_cannot_be_had_are_told_with_the_reason_and_leave_no_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StartFailed, match=rf"any of 1 ports; the last one: .* port {port}: .*in use"):
            bind_all("127.0.0.1", [port], path)
    with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
        client.connect(str(path))
