"""Invalid requests that HTTP libraries do not produce: each gets a 4xx with the reason, none a 5xx."""

import gzip
import json
import socket
from typing import Any

import pytest

Server = Any  # a ServerProcess of conftest.py
DEADLINE_S = 30
PREDICT = b"/v1/models/half_plus:predict"
BODY = b'{"instances": [1]}'
JSON_TYPE = b"Content-Type: application/json\r\n"
CSV_TYPE = b"Content-Type: text/csv\r\n"


def raw(
    target: bytes = PREDICT, body: bytes = BODY, headers: bytes = b"", *, method: bytes = b"POST", sized: bool = True
) -> bytes:
    """Return a request as bytes, after which the server closes the connection."""
    length = b"Content-Length: %d\r\n" % len(body) if sized else b""
    head = b"%s %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n" % (method, target)
    return head + headers + length + b"\r\n" + body


def exchange(server: Server, request: bytes) -> tuple[int, bytes]:
    """Send bytes and read to the end; return the status and the body of the answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as client:
        client.sendall(request)
        answer = b"".join(iter(lambda: client.recv(65_536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), body


CHUNKED = b"Transfer-Encoding: chunked\r\n"
GZIP = b"Content-Encoding: gzip\r\n"
DEEP = b"[" * 61 + b'"a"' + b"]" * 61


@pytest.mark.parametrize(
    ("request_bytes", "status", "text"),
    [
        # bodies
        (raw(body=b"\x00"), 400, "JSON Parse error: Invalid value. at offset: 0"),
        (raw(body=b"\xef\xbb\xbf" + BODY), 400, "JSON Parse error: Invalid value. at offset: 0"),
        (raw(body=BODY.decode().encode("utf-16")), 400, "JSON Parse error: Invalid encoding in string. at offset: 0"),
        (raw(body=b'{"instances": ["\xff"]}'), 400, "JSON Parse error: Invalid encoding in string. at offset: 16"),
        (raw(body=b'{"inputs": null}'), 400, "JSON Value: null Type: Null is not of expected type: float"),
        (raw(body=b'{"signature_name": null, "inputs": 1}'), 400, "JSON Value: null 'signature_name' key must be a"),
        (raw(body=b'{"signature_name": "\\ud800", "inputs": 1}'), 400, "JSON Parse error: The surrogate pair in str"),
        (raw(b"/v1/models/text:predict", b'{"inputs": ' + DEEP + b"}"), 400, 'JSON Value: ["a"] is nested deeper than'),
        (
            raw(b"/v1/models/examples:regress", b'{"signature_name": "regress", "examples": [{"\\ud83c": 1}]}'),
            400,
            "JSON Parse error: The surrogate pair in string is invalid. at offset: 45",
        ),
        (raw(body=b'{"instances": [' + b"9" * 400 + b"]}"), 400, "JSON Parse error: Number too big to be stored in"),
        # encodings of bodies
        (raw(headers=GZIP, body=b"xx"), 400, "The gzip body is damaged: "),
        (raw(headers=GZIP, body=gzip.compress(BODY)[:-6]), 400, "The gzip body ends before its last member does"),
        (raw(headers=GZIP, body=gzip.compress(bytes(150_000_000), 1)), 413, "The request body is larger than the 1000"),
        (raw(headers=GZIP, body=gzip.compress(b"") * 20_000), 400, "The gzip body has more than 10000 members"),
        (raw(headers=GZIP + GZIP, body=BODY), 415, "Unsupported Content-Encoding: gzip, gzip; send gzip or identity"),
        (raw(headers=CHUNKED, body=b"zz\r\n", sized=False), 400, "Malformed HTTP request: "),
        (raw(headers=CHUNKED, body=b"0\r\n\r\n", sized=False), 400, "JSON Parse error: The document is empty"),
        (
            raw(headers=b"Transfer-Encoding: gzip, chunked\r\n", body=b"0\r\n\r\n", sized=False),
            400,
            "Unsupported Transfer-Encoding: gzip, chunked; send chunked",
        ),
        # targets and methods
        (raw(method=b"PUT"), 400, "Malformed request: PUT /v1/models/half_plus:predict"),
        (raw(method=b"GET"), 400, "Malformed request: GET /v1/models/half_plus:predict"),
        (raw(method=b"BREW"), 400, "Malformed HTTP request: "),
        (raw(b"*", method=b"OPTIONS"), 404, "Not Found"),
        (raw(b"h:80", method=b"CONNECT", sized=False, body=b""), 404, "Not Found"),
        (raw(b"http://h"), 404, "Not Found"),
        (raw(b"/v1/models/\xff"), 400, "Malformed HTTP request: "),
        (raw(b"/v1/models/%ff%00%zz:predict"), 404, "Servable not found for request: Latest(\ufffd\x00%zz)"),
        (raw(b"/v1/models/half_plus/versions/%s:predict" % (b"9" * 9_000)), 400, "Failed to convert version: 999"),
        (raw(b"/v1/models/half_plus/versions/9223372036854775808:predict"), 400, "Failed to convert version: 9223"),
        (raw(b"/v1/models/half_plus/versions/9223372036854775807:predict"), 404, "Servable not found for request: Sp"),
        (raw(b"/v1/models/half_plus/versions/0000000000000000000000005:predict"), 404, "Servable not found for"),
        (raw(b"/v1/models/half_plus/labels/%ff:predict"), 400, "Unrecognized servable version label: \ufffd"),
        # invocations
        (raw(b"/invocations"), 415, "Unsupported Media Type: Unknown"),
        (raw(b"/invocations", headers=JSON_TYPE * 2), 415, "Unsupported Media Type: application/json, a"),
        (raw(b"/invocations", headers=b"Content-Type: \xff\r\n"), 415, "Unsupported Media Type: \xff"),
        (raw(b"/invocations", b"[1]\n[2", JSON_TYPE), 400, "JSON Parse error: Missing a comma or ] after an"),
        (raw(b"/invocations", b"[1]\n{2}", JSON_TYPE), 400, "JSON Parse error: Missing a name for object member."),
        (raw(b"/invocations", b"\xff", CSV_TYPE), 400, "The CSV body is not UTF-8: byte 0"),
        (raw(b"/invocations", b'1,"2', CSV_TYPE), 400, "The CSV line '1,\"2' has a quoted field"),
        (raw(b"/invocations", b"1e999\n", CSV_TYPE), 400, "JSON Parse error: Number too big to be"),
        (raw(b"/invocations", b"+1e999\n", CSV_TYPE), 400, "JSON Parse error: Number too big to be"),
        (raw(b"/invocations", b"\n \r\n", CSV_TYPE), 400, "JSON Parse error: The document is empty"),
        (
            raw(b"/invocations", headers=JSON_TYPE + b"X-Amzn-SageMaker-Custom-Attributes: tfs-model-version=1.5\r\n"),
            400,
            "Failed to convert version: 1.5",
        ),
        (
            raw(b"/invocations", headers=JSON_TYPE + b"X-Amzn-SageMaker-Custom-Attributes: tfs-method=classify\r\n"),
            400,
            "Expecting 'examples' to be list/array",
        ),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else str(value)[:40],
)
def test_a_hostile_request_gets_an_error_with_the_reason(
    server: Server, request_bytes: bytes, status: int, text: str
) -> None:
    got, body = exchange(server, request_bytes)
    assert (got, json.loads(body)["error"][: len(text)]) == (status, text)


@pytest.mark.parametrize(
    "request_bytes",
    [
        raw(headers=CHUNKED, body=b"6;x=y\r\n%s\r\nc\r\n%s\r\n0\r\nX: y\r\n\r\n" % (BODY[:6], BODY[6:]), sized=False),
        raw(headers=GZIP, body=gzip.compress(BODY[:5]) + gzip.compress(BODY[5:])),
        raw(b"http://h" + PREDICT),
        raw(b"/invocations", headers=JSON_TYPE + b"Accept: ,application/json\r\n"),
        raw(body=b'{"instances": [1], "instances": [0]}'),
        raw(body=b'{"instances": [1], "instances": [0]}' + b" " * 300),
    ],
)
def test_an_unusual_request_is_answered(server: Server, request_bytes: bytes) -> None:
    status, body = exchange(server, request_bytes)
    assert (status, json.loads(body)) == (200, {"predictions": [3.5]})


@pytest.mark.parametrize("target", [b"/v1/models/half_plus", b"/v1/models/text/metadata", PREDICT, b"/none", b"/ping"])
def test_head_is_answered_without_a_body(server: Server, target: bytes) -> None:
    status, body = exchange(server, raw(target, b"", method=b"HEAD", sized=False))
    assert (status in (200, 400, 404), body) == (True, b"")


def test_an_answer_always_names_its_content_type(server: Server) -> None:
    answer = server.invoke("[1]", Accept=",application/json")
    assert answer.headers["content-type"] == "application/json"
