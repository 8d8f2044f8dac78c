"""Bad requests, one row each, with the expected refusal.

The rows need a running service and one key pair (``Target``), so they can be sent to the toys of this directory and to
the whole service alike. Groups: A authentication, B chunked bodies, C HTTP, D JSON and validation.
"""

import base64
import gzip
import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from signing import Answer, Signed, chunked_upload, converse, crc32, json_call, presigned, sign

__all__ = ["ROWS", "Row", "Target"]

MIB = 1024 * 1024
LIST = "SageMaker.ListTrainingJobs"
CREATE = "SageMaker.CreateTrainingJob"
UNSIGNED = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
JOB = {
    "TrainingJobName": "a",
    "AlgorithmSpecification": {"TrainingImage": "i", "TrainingInputMode": "File"},
    "RoleArn": "arn:aws:iam::000000000000:role/SageMakerRole",
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "ResourceConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large", "VolumeSizeInGB": 1},
    "StoppingCondition": {"MaxRuntimeInSeconds": 60},
}


@dataclass(frozen=True)
class Target:
    """The service to which rows are sent."""

    port: int
    key: str
    secret: str

    def call(self, target: str = LIST, body: bytes = b"{}", **options: object) -> Signed:
        return json_call(self.port, target, body, **{"key": self.key, "secret": self.secret, **options})

    def s3(self, method: str = "PUT", path: str = "/bucket/key", body: bytes = b"", **options: object) -> Signed:
        keys = {"key": self.key, "secret": self.secret}
        return sign(self.port, **{**keys, "service": "s3", "method": method, "path": path, "body": body, **options})

    def url(self, **options: object) -> Signed:
        return presigned(self.port, "/bucket/key", **{"key": self.key, "secret": self.secret, **options})

    def chunked(self, *pieces: bytes, **options: object):
        return chunked_upload(self.port, pieces, **{"key": self.key, "secret": self.secret, **options})

    def send(self, request: bytes | Signed, **options: object) -> Answer:
        return converse(self.port, request if isinstance(request, bytes) else request.raw(), **options)


@dataclass(frozen=True)
class Row:
    """One bad request."""

    name: str
    throw: Callable[[Target], Answer]
    status: tuple[int, ...]
    code: str
    says: str = ""

    def check(self, target: Target) -> None:
        answer = self.throw(target)
        assert answer.status in self.status, (answer.status, answer.text)
        assert answer.code == self.code, answer.text
        assert self.says.lower() in answer.text.lower()
        assert "Traceback" not in answer.text


def _row(
    name: str, build: Callable[[Target], bytes | Signed], status: int | tuple[int, ...], code: str, says: str = ""
) -> Row:
    wanted = (status,) if isinstance(status, int) else status
    return Row(name, lambda target: target.send(build(target)), wanted, code, says)


def _spoilt_header(pattern: str, text: str) -> Callable[[Target], Signed]:
    def build(target: Target) -> Signed:
        call = target.call()
        return call.replaced("Authorization", re.sub(pattern, text, call.header("Authorization")))

    return build


def _both_forms(target: Target) -> Signed:
    url = target.url()
    url.headers.append(("Authorization", target.s3("GET").header("Authorization")))
    return url


def _wrong_day(target: Target) -> Signed:
    call = target.call()
    date = call.stamp[:8]
    other = f"{int(date[:4]) - 1}{date[4:]}"
    return call.replaced("Authorization", call.header("Authorization").replace(f"/{date}/", f"/{other}/"))


def _changed_s3_body(target: Target) -> Signed:
    return target.s3(body=b"first").with_body(b"other")


def _changed_json_body(target: Target) -> Signed:
    headers = {
        "Content-Type": "application/x-amz-json-1.1",
        "X-Amz-Target": LIST,
        "X-Amz-Content-SHA256": "0" * 64,
    }
    return target.call(headers=headers)


A = [
    _row("A1 no auth", lambda t: t.call().replaced("Authorization", None), 403, "MissingAuthenticationToken"),
    _row("A1 no auth, S3", lambda t: t.s3().replaced("Authorization", None), 403, "MissingAuthenticationToken"),
    _row("A2 Basic", lambda t: t.call().replaced("Authorization", "Basic eDp5"), 400, "IncompleteSignature"),
    _row("A3 unknown key", lambda t: t.call(key="AKIDNOBODY"), 403, "UnrecognizedClientException"),
    _row("A3 unknown key, S3", lambda t: t.s3(key="AKIDNOBODY"), 403, "InvalidAccessKeyId"),
    _row("A4 wrong secret", lambda t: t.call(secret="wrong"), 403, "SignatureDoesNotMatch"),
    _row("A4 wrong secret, S3", lambda t: t.s3(secret="wrong"), 403, "SignatureDoesNotMatch"),
    _row("A5 scope of sts", lambda t: t.call(service="sts"), 403, "SignatureDoesNotMatch", "correct service"),
    _row(
        "A5 scope of sagemaker on S3",
        lambda t: t.s3("GET", service="sagemaker"),
        403,
        "SignatureDoesNotMatch",
        "correct service",
    ),
    _row("A7 16 minutes ahead", lambda t: t.call(shift_s=960), 403, "RequestTimeTooSkewed", "server's time is"),
    _row("A8 16 minutes behind", lambda t: t.call(shift_s=-960), 403, "RequestTimeTooSkewed", "server's time is"),
    _row("A9 scope of another day", _wrong_day, 403, "SignatureDoesNotMatch", "does not match"),
    _row("A10 host not signed", _spoilt_header("host;", ""), 403, "AccessDenied", "not signed: host"),
    _row("A11 target not signed", _spoilt_header(";x-amz-target", ""), 403, "AccessDenied", "not signed: x-amz-target"),
    _row("A14 expired URL", lambda t: t.url(shift_s=-120), 403, "AccessDenied", "expired"),
    _row("A14 URL of the future", lambda t: t.url(shift_s=1000), 403, "AccessDenied", "not yet valid"),
    _row("A15 URL for 8 days", lambda t: t.url(expires_s=8 * 86400), 400, "AuthorizationQueryParametersError"),
    _row("A16 both forms", _both_forms, 400, "InvalidArgument"),
    _row("A17 5 KB Authorization", _spoilt_header("$", "x" * 5000), 400, "IncompleteSignature"),
    _row("A18 body changed, S3", _changed_s3_body, 400, "XAmzContentSHA256Mismatch"),
    _row("A18 body hash differs, JSON", _changed_json_body, 400, "XAmzContentSHA256Mismatch"),
    _row("A18 body changed, JSON", lambda t: t.call().with_body(b'{"x":1}'), 403, "SignatureDoesNotMatch"),
]

MALFORMED = [
    _row(f"A malformed: {name}", _spoilt_header(pattern, text), (400, 403), code)
    for name, pattern, text, code in [
        ("nothing after the algorithm", r"AWS4-HMAC-SHA256 .*", "AWS4-HMAC-SHA256", "IncompleteSignature"),
        ("no signature", r", Signature=.*", "", "IncompleteSignature"),
        ("short scope", r"/aws4_request", "", "IncompleteSignature"),
        ("signature not hexadecimal", r"Signature=.", "Signature=Z", "IncompleteSignature"),
        ("a field twice", r"$", ", Signature=00", "IncompleteSignature"),
        ("capital header names", "SignedHeaders=content-type", "SignedHeaders=Content-Type", "IncompleteSignature"),
        ("a signed header that is absent", "host;", "host;x-absent;", "SignatureDoesNotMatch"),
        ("not ASCII", "us-west-2", "\xfcs-west-2", "SignatureDoesNotMatch"),
    ]
]


def _chunk_row(
    name: str, spoil: Callable[[bytes], bytes], status: int, code: str, *, pieces: tuple[bytes, ...] = (b"hello",)
) -> Row:
    def throw(target: Target) -> Answer:
        upload = target.chunked(*pieces)
        body = spoil(b"".join(upload.chunks) + upload.tail)
        return target.send(upload.head.with_body(body))

    return Row(name, throw, (status,), code)


def _trailer_row(name: str, announced: str | None, trailers: dict[str, str], code: str, kind: str = UNSIGNED) -> Row:
    def throw(target: Target) -> Answer:
        upload = target.chunked(b"hello", b"world", kind=kind, announced=announced, trailers=trailers)
        return target.send(upload.raw())

    return Row(name, throw, (400,), code)


def _cut_short(target: Target) -> Answer:
    return target.send(target.chunked(b"hello").head.with_body(b"5;chunk-signature=" + b"0" * 64 + b"\r\nhel"))


def _lengths(decoded_bytes: int) -> Callable[[Target], bytes]:
    return lambda target: target.chunked(b"hello", decoded_bytes=decoded_bytes).raw()


def _digest_row(algorithm: str, size_bytes: int) -> Row:
    wrong = base64.b64encode(b"\x01" * size_bytes).decode()
    name = f"x-amz-checksum-{algorithm}"
    return _trailer_row(f"B28 wrong {algorithm} in a trailer", name, {name: wrong}, "BadDigest")


B = [
    _chunk_row("B19 bad chunk signature", lambda b: b.replace(b"hello", b"jello"), 403, "SignatureDoesNotMatch"),
    _chunk_row("B20 no chunk signature", lambda b: re.sub(rb";[^\r]*", b"", b, count=1), 403, "SignatureDoesNotMatch"),
    *(
        _chunk_row(f"B21 chunk size {size!r}", lambda b, s=size: s + b[1:], 400, "InvalidChunkSizeError")
        for size in (b"-1", b"0x10", b"000000005", b"", b"g", b" 5")
    ),
    _chunk_row("B22 chunk above 16 MiB", lambda b: b"1000001" + b[1:], 400, "InvalidChunkSizeError"),
    _chunk_row("B23 line above 1 KiB", lambda b: b"5;" + b"x" * 1100 + b[1:], 400, "InvalidRequest"),
    _chunk_row("B24 CRLF after data missing", lambda b: b.replace(b"hello\r\n", b"helloXX"), 400, "InvalidRequest"),
    _chunk_row("B24 bare LF after a size", lambda b: b.replace(b"\r\nhello", b"\nhello"), 400, "InvalidRequest"),
    Row("B25 ends in mid-chunk", _cut_short, (400,), "IncompleteBody"),
    _row("B26 more than the decoded length", _lengths(4), 400, "IncompleteBody"),
    _row("B26 less than the decoded length", _lengths(6), 400, "IncompleteBody"),
    _trailer_row("B27 not announced", None, {"x-amz-checksum-crc32": crc32(b"helloworld")}, "MalformedTrailerError"),
    _trailer_row("B27 announced but absent", "x-amz-checksum-crc32", {}, "MalformedTrailerError"),
    _trailer_row("B27 absent, signed", "x-amz-checksum-crc32", {}, "MalformedTrailerError", TRAILER),
    _digest_row("crc32", 4),
    _digest_row("crc32c", 4),
    _digest_row("crc64nvme", 8),
    _digest_row("sha1", 20),
    _digest_row("sha256", 32),
    _trailer_row("B28 not a digest", "x-amz-checksum-crc32", {"x-amz-checksum-crc32": "AAAA"}, "InvalidRequest"),
    _row(
        "B28 wrong crc32 in a header",
        lambda t: t.s3(body=b"x", headers={"x-amz-checksum-crc32": crc32(b"y")}),
        400,
        "BadDigest",
    ),
    _row(
        "B28 wrong Content-MD5",
        lambda t: t.s3(body=b"x", headers={"Content-MD5": base64.b64encode(b"0" * 16).decode()}),
        400,
        "BadDigest",
    ),
    _row("B28 malformed Content-MD5", lambda t: t.s3(body=b"x", headers={"Content-MD5": "no"}), 400, "InvalidDigest"),
    _chunk_row("B29 data after the last chunk", lambda b: b + b"more", 400, "InvalidRequest"),
]


def _chunked_http(request: Signed, body: bytes) -> bytes:
    head = request.replaced("Content-Length", None)
    head.extra.append("Transfer-Encoding: chunked")
    head.body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    return head.raw()


def _lines(call: Signed, *lines: str) -> Signed:
    call.extra.extend(lines)
    return call


C = [
    _row(
        "C30 8 MB header", lambda t: _lines(t.call(), "X-Big: " + "x" * 8_000_000), 431, "RequestHeaderSectionTooLarge"
    ),
    _row("C30 17 KiB line", lambda t: _lines(t.call(), "X-Big: " + "x" * 17_400), 431, "RequestHeaderSectionTooLarge"),
    _row(
        "C30 100 KiB in all",
        lambda t: _lines(t.call(), *(f"X-{i}: {'x' * 1000}" for i in range(100))),
        431,
        "RequestHeaderSectionTooLarge",
    ),
    _row(
        "C31 10,000 headers",
        lambda t: _lines(t.call(), *(f"X-{i}: y" for i in range(10_000))),
        431,
        "RequestHeaderSectionTooLarge",
    ),
    _row("C32 two Hosts", lambda t: _lines(t.call(), "Host: 127.0.0.1"), 400, "InvalidRequest"),
    _row("C32 no Host", lambda t: t.call().replaced("Host", None), 400, "InvalidRequest"),
    _row("C33 foreign Host", lambda t: t.call(host="rebound.example:80"), 421, "MisdirectedRequest"),
    _row("C33 foreign Host, S3", lambda t: t.s3(host="s3.amazonaws.com"), 421, "MisdirectedRequest"),
    _row("C33 name that begins like ours", lambda t: t.call(host="127.0.0.1.evil.example"), 421, "MisdirectedRequest"),
    _row("C34 foreign Origin", lambda t: _lines(t.call(), "Origin: http://evil.example"), 403, "AccessDenied"),
    _row("C34 null Origin", lambda t: _lines(t.call(), "Origin: null"), 403, "AccessDenied"),
    _row("C34 cross-site", lambda t: _lines(t.s3(), "Sec-Fetch-Site: cross-site"), 403, "AccessDenied"),
    _row("C35 length and coding", lambda t: _lines(t.call(), "Transfer-Encoding: chunked"), 400, "InvalidRequest"),
    _row("C36 two lengths", lambda t: _lines(t.call(), "Content-Length: 2"), 400, "InvalidRequest"),
    _row("C39 JSON above 2 MiB", lambda t: t.call(body=b" " * (2 * MIB + 1)), 413, "RequestEntityTooLarge"),
    _row(
        "C39 JSON above 2 MiB, no length",
        lambda t: _chunked_http(t.call(), b" " * (2 * MIB + 1)),
        413,
        "RequestEntityTooLarge",
    ),
    _row(
        "C39 form above 64 KiB",
        lambda t: sign(
            t.port,
            key=t.key,
            secret=t.secret,
            service="sts",
            headers={"Content-Type": "application/x-www-form-urlencoded"},
            body=b"Action=GetCallerIdentity&x=" + b"x" * 65536,
        ),
        413,
        "RequestEntityTooLarge",
    ),
    _row(
        "C39 invocation above 6 MiB",
        lambda t: sign(t.port, key=t.key, secret=t.secret, path="/endpoints/e/invocations", body=b"x" * (6 * MIB + 1)),
        413,
        "RequestEntityTooLarge",
        '"OriginalStatusCode":413',
    ),
    _row("C40 unknown target", lambda t: t.call("Nobody.Knows"), 400, "UnknownOperationException"),
    _row("C40 unknown operation", lambda t: t.call("SageMaker.Frobnicate"), 400, "UnknownOperationException"),
    _row("C40 target without a dot", lambda t: t.call("SageMaker"), 400, "UnknownOperationException"),
    _row(
        "C41 compressed JSON",
        lambda t: _lines(t.call(body=gzip.compress(b" " * 10_000_000)), "Content-Encoding: gzip"),
        415,
        "UnsupportedMediaTypeException",
    ),
    _row("C bare LF", lambda t: t.call().raw().replace(b"\r\n", b"\n"), 400, "InvalidRequest"),
    _row("C folded header", lambda t: _lines(t.call(), "X-Fold: a", " b"), 400, "InvalidRequest"),
    _row("C not HTTP", lambda t: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\r\n\r\n", 400, "InvalidRequest"),
    _row("C S3 method", lambda t: t.s3("PATCH"), 405, "MethodNotAllowed"),
    _row("C path that is not UTF-8", lambda t: t.s3("GET", "/bucket/%ff"), 400, "InvalidURI"),
]


def _job(**changes: object) -> bytes:
    return json.dumps(JOB | changes).encode()


def _bad_json(name: str, body: bytes) -> Row:
    return _row(f"D {name}", lambda t: t.call(body=body), 400, "SerializationException")


def _bad_job(name: str, says: str, **changes: object) -> Row:
    return _row(f"D {name}", lambda t: t.call(CREATE, _job(**changes)), 400, "ValidationException", says)


def _channel(number: int) -> dict[str, object]:
    return {"ChannelName": f"c{number}", "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://b/"}}}


D = [
    _bad_json("42 depth 100,000", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    _bad_json("42 depth 65", b'{"a":' + b"[" * 64 + b"]" * 64 + b"}"),
    _bad_json("43 5,000 digits", b'{"a":' + b"1" * 5000 + b"}"),
    *(_bad_json(f"44 {word}", b'{"a":%s}' % word.encode()) for word in ("NaN", "Infinity", "-Infinity", "1e999")),
    _bad_json("45 duplicate key", b'{"a":1,"a":1}'),
    _bad_json("46 lone surrogate", rb'{"a":"\ud800"}'),
    _bad_json("46 lone surrogate in a key", rb'{"\udc00":"a"}'),
    _bad_json("47 UTF-16", '{"a":1}'.encode("utf-16")),
    _bad_json("47 byte-order mark", b"\xef\xbb\xbf{}"),
    _bad_json("47 not UTF-8", b'{"a":"\xff"}'),
    _bad_json("truncated", b'{"a":'),
    _bad_json("an array", b"[]"),
    *(
        _row(
            f"D 48 wrong type at {says}",
            lambda t, c=c: t.call(CREATE, _job(**c)),
            400,
            "SerializationException",
            says,
        )
        for says, c in [
            ("ResourceConfig.InstanceCount", {"ResourceConfig": {"InstanceCount": "2", "InstanceType": "x"}}),
            ("Tags.0.Key", {"Tags": [{"Key": 5, "Value": "v"}]}),
            ("HyperParameters.a", {"HyperParameters": {"a": True}}),
            ("TrainingJobName", {"TrainingJobName": ["a"]}),
            ("StoppingCondition", {"StoppingCondition": 5}),
        ]
    ),
    *(
        _bad_job(f"50 name {name!r}", "'trainingJobName' failed to satisfy constraint", TrainingJobName=name)
        for name in ("a\n", "a" * 64, "../x", "", "-a", "ü")
    ),
    _bad_job("50 the pattern is shown", "regular expression pattern: [a-zA-Z0-9]", TrainingJobName="a/b"),
    _bad_job("51 101 hyperparameters", "less than or equal to 100", HyperParameters={f"h{i}": "" for i in range(101)}),
    _bad_job("52 hyperparameter of 2,501", "less than or equal to 2500", HyperParameters={"h": "x" * 2501}),
    _bad_job("53 101 variables", "less than or equal to 100", Environment={f"E{i}": "" for i in range(101)}),
    _bad_job("53 variable of 513", "less than or equal to 512", Environment={"E": "x" * 513}),
    _bad_job("54 21 channels", "less than or equal to 20", InputDataConfig=[_channel(i) for i in range(21)]),
    *(
        _bad_job(
            f"54 MaxRuntime {value}",
            "stoppingCondition.maxRuntimeInSeconds",
            StoppingCondition={"MaxRuntimeInSeconds": value},
        )
        for value in (0, -1, 2**63)
    ),
    _bad_job("wrong enumeration", "enum value set: [", AlgorithmSpecification={"TrainingInputMode": "Pipes"}),
    _row(
        "D required members are all named",
        lambda t: t.call(CREATE, b"{}"),
        400,
        "ValidationException",
        "validation errors detected: value null at 'trainingJobName' failed to satisfy constraint: member must not be",
    ),
]

ROWS = [*A, *MALFORMED, *B, *C, *D]
