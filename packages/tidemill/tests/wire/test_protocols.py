"""Readers and writers of the protocols, tested separately."""

from datetime import UTC, datetime
from typing import Any

import botocore.parsers
import pytest

from tidemill.errors import AwsError
from tidemill.services.s3.ranges import copy_range, requested_slice
from tidemill.store.objects.errors import InvalidArgument
from tidemill.wire import timestamps
from tidemill.wire.match import RestRouter
from tidemill.wire.operations import operation
from tidemill.wire.protocols.models import service_model
from tidemill.wire.protocols.parse_query import parse_form
from tidemill.wire.protocols.parse_rest import parse_document, parse_scalar
from tidemill.wire.protocols.serialize_rest import header_pairs
from tidemill.wire.protocols.serialize_xml import escape
from tidemill.wire.request import Guard, Request, host_name
from tidemill.wire.validation.patterns import compile_pattern
from tidemill.wire.validation.validate import compile_check, refuse_invalid


def request(method: str = "GET", path: str = "/", query: str = "", **headers: str) -> Request:
    return Request(method, path, query, headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize(
    ("method", "path", "query", "headers", "wanted"),
    [
        ("GET", "/", "", {}, "ListBuckets"),
        ("GET", "/b", "", {}, "ListObjects"),
        ("GET", "/b/", "list-type=2&prefix=x", {}, "ListObjectsV2"),
        ("GET", "/b", "location", {}, "GetBucketLocation"),
        ("GET", "/b", "versions=", {}, "ListObjectVersions"),
        ("GET", "/b", "uploads", {}, "ListMultipartUploads"),
        ("HEAD", "/b", "", {}, "HeadBucket"),
        ("PUT", "/b", "", {}, "CreateBucket"),
        ("POST", "/b", "delete", {}, "DeleteObjects"),
        ("GET", "/b/k", "", {}, "GetObject"),
        ("GET", "/b/k/", "", {}, "GetObject"),
        ("GET", "/b//k", "partNumber=1", {}, "GetObject"),
        ("GET", "/b/k", "uploadId=u", {}, "ListParts"),
        ("GET", "/b/k", "tagging", {}, "GetObjectTagging"),
        ("PUT", "/b/k", "x-id=PutObject", {}, "PutObject"),
        ("PUT", "/b/k", "", {"x_amz_copy_source": "b/x"}, "CopyObject"),
        ("PUT", "/b/k", "partNumber=1&uploadId=u", {}, "UploadPart"),
        ("PUT", "/b/k", "partNumber=1&uploadId=u", {"x_amz_copy_source": "b/x"}, "UploadPartCopy"),
        ("POST", "/b/k", "uploads", {}, "CreateMultipartUpload"),
        ("POST", "/b/k", "uploadId=u", {}, "CompleteMultipartUpload"),
        ("DELETE", "/b/k", "", {}, "DeleteObject"),
        ("DELETE", "/b/k", "uploadId=u", {}, "AbortMultipartUpload"),
    ],
)
def test_an_s3_request_means_the_most_specific_operation(
    method: str, path: str, query: str, headers: dict[str, str], wanted: str
) -> None:
    found = RestRouter("s3", handled=()).find(request(method, path, query, **headers))
    assert found is not None
    assert found[0] == wanted


def test_a_key_is_decoded_once_and_keeps_its_slashes() -> None:
    found = RestRouter("s3", handled=()).find(request("GET", "/b//a%252Fb/%C3%BC%0A/"))
    assert found is not None
    assert found[1] == {"Bucket": "b", "Key": "/a%2Fb/ü\n/"}


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost:8780", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]:80", "::1"),
        ("LOCALHOST.", "localhost"),
        ("a:b:c", None),
        ("a:x", None),
        ("[::1", None),
        ("[::1]x", None),
        ("", None),
    ],
)
def test_a_host_header_is_taken_apart(host: str, name: str | None) -> None:
    assert host_name(host) == name


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1:1", "127.8.8.8", "[::1]:9", "tide.example:80", "TIDE.example"]
)
def test_loopback_names_and_configured_names_are_accepted(host: str) -> None:
    Guard(["tide.example"]).check(request(host=host))


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "0.0.0.0", "10.0.0.1", "127.0.0.1@x", "::1"]
)
def test_other_hosts_are_refused(host: str) -> None:
    with pytest.raises(AwsError) as caught:
        Guard(["tide.example"]).check(request(host=host))
    assert caught.value.status == 421


def test_a_page_of_our_own_origin_may_ask() -> None:
    Guard().check(request(host="localhost:8780", origin="http://localhost:8780", sec_fetch_site="same-origin"))
    with pytest.raises(AwsError):
        Guard().check(request(host="localhost:8780", origin="http://localhost:3000"))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2026-11-21T10:00:00Z", datetime(2026, 11, 21, 10, tzinfo=UTC)),
        ("2026-11-21T10:00:00.250Z", datetime(2026, 11, 21, 10, 0, 0, 250_000, tzinfo=UTC)),
        ("2026-11-21T12:30:00+02:30", datetime(2026, 11, 21, 10, tzinfo=UTC)),
        ("2026-11-21", datetime(2026, 11, 21, tzinfo=UTC)),
    ],
)
def test_iso_times_are_read(text: str, wanted: datetime) -> None:
    assert timestamps.parse_iso8601(text) == wanted


def test_times_are_written_in_three_ways() -> None:
    moment = datetime(2026, 11, 21, 10, 0, 0, 250_000, tzinfo=UTC)
    assert timestamps.iso8601(moment) == "2026-11-21T10:00:00.250Z"
    assert timestamps.rfc822(moment) == "Sat, 21 Nov 2026 10:00:00 GMT"
    assert timestamps.epoch_seconds(moment) == 1795255200.25
    assert timestamps.epoch_seconds(1795255200) == 1795255200


@pytest.mark.parametrize("service", ["sagemaker", "sagemaker-runtime", "logs", "s3", "sts", "iam", "cloudwatch"])
def test_every_pattern_of_the_models_can_be_compiled(service: str) -> None:
    model = service_model(service)
    for name in model.shape_names:
        pattern = model.shape_for(name).metadata.get("pattern")
        if pattern:
            assert compile_pattern(pattern) is not None, pattern


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        (r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)", "Größe 漢字:1/x", True),
        (r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)", "a\nb", False),
        (r"\p{ASCII}*", "plain", True),
        (r"\p{ASCII}*", "ü", False),
        (r"\A\S[\p{Print}]*\z", "x y", True),
        (r"\A\S[\p{Print}]*\z", "x\n", False),
        (r"[\u0020-\uD7FF\uE000-\uFFFD\uD800\uDC00-\uDBFF\uDFFF\t]*", "a\U0001f600\t", True),
    ],
)
def test_a_java_pattern_means_the_same_here(pattern: str, text: str, fits: bool) -> None:
    compiled = compile_pattern(pattern)
    assert compiled is not None
    assert bool(compiled.fullmatch(text)) is fits


def test_xml_with_a_dtd_or_deep_nesting_is_refused() -> None:
    bomb = b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><Delete><Object><Key>&b;</Key></Object></Delete>'
    for data in (bomb, b"<a>" * 100_000, b"<a>" * 65 + b"</a>" * 65, b"<a>", b"", b"\xff\xfe<", b"<a/><b/>"):
        with pytest.raises(AwsError) as caught:
            parse_document(data)
        assert caught.value.code == "MalformedXML"


def test_a_form_is_read_into_lists_maps_and_structures() -> None:
    fields = parse_form(
        b"Action=SimulatePrincipalPolicy&PolicySourceArn=arn:aws:iam::000000000000:role/x&ActionNames.member.1=s3%3AGet"
        b"&ActionNames.member.2=a+b&ContextEntries.member.1.ContextKeyName=aws:k&MaxItems=5"
        b"&ContextEntries.member.1.ContextKeyValues.member.1=v"
    )
    read = operation("iam", "SimulatePrincipalPolicy", "query").read
    assert read(request(), fields, b"", []) == {
        "PolicySourceArn": "arn:aws:iam::000000000000:role/x",
        "ActionNames": ["s3:Get", "a b"],
        "ContextEntries": [{"ContextKeyName": "aws:k", "ContextKeyValues": ["v"]}],
        "MaxItems": 5,
    }


@pytest.mark.parametrize(
    "body", [b"a=1&a=2", b"a=%ff", b"&".join(b"x%d=1" % i for i in range(3000)), b"." * 100 + b"=1"]
)
def test_a_bad_form_is_refused(body: bytes) -> None:
    with pytest.raises(AwsError) as caught:
        parse_form(body)
    assert caught.value.status == 400


@pytest.mark.parametrize("text", ["1_000", "0x10", "", " 1", "\u0661", "1e3", "9" * 41])
def test_a_number_in_a_query_has_digits_only(text: str) -> None:
    shape = service_model("s3").operation_model("ListObjectsV2").input_shape.members["MaxKeys"]
    with pytest.raises(ValueError, match="integer"):
        parse_scalar(shape, text)


@pytest.mark.parametrize("digits", ["\u0663", "\uff13", "\u00b2"])
def test_digits_of_other_alphabets_are_no_digits(digits: str) -> None:
    double = service_model("cloudwatch").shape_for("DatapointValue")
    time = service_model("s3").shape_for("LastModified")
    for shape, text in [
        (double, digits),
        (double, f"1.{digits}"),
        (double, "1_0"),
        (time, f"{digits * 4}-11-21"),
        (time, f"Sat, 2{digits} Nov 2026 10:00:00 GMT"),
    ]:
        for form in ("iso8601", "rfc822"):
            with pytest.raises(ValueError, match=r"."):
                parse_scalar(shape, text, timestamp_format=form)
    assert requested_slice(f"bytes=0-{digits}", 10) is None
    with pytest.raises(InvalidArgument):
        copy_range(f"bytes=0-{digits}", 10)
    assert requested_slice("bytes=0-3", 10) == copy_range("bytes=0-3", 10)


def test_markup_and_control_characters_are_escaped() -> None:
    assert escape('<a&b>"\r\x01\n') == "&lt;a&amp;b&gt;&quot;&#13;&#1;\n"


def test_a_header_with_a_line_break_is_refused() -> None:
    assert header_pairs([("X-A", "a b\tü")]) == [(b"x-a", "a b\tü".encode())]
    with pytest.raises(AwsError):
        header_pairs([("X-A", "a\r\nSet-Cookie: b")])


REPLIES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("sagemaker", "ListTags", "json", {"Tags": [{"Key": "k", "Value": "ü"}], "NextToken": "t"}),
    ("logs", "GetLogEvents", "json", {"events": [{"timestamp": 1, "message": "\x00\u2028"}]}),
    ("cloudwatch", "GetMetricStatistics", "json", {"Label": "l", "Datapoints": [{"Average": 0.5}]}),
    (
        "cloudwatch",
        "GetMetricStatistics",
        "query",
        {"Label": "l", "Datapoints": [{"Average": 0.5, "Timestamp": datetime(2026, 1, 1, tzinfo=UTC)}]},
    ),
    ("s3", "GetObjectTagging", "rest-xml", {"TagSet": [{"Key": "a&b", "Value": "<x>"}]}),
    ("s3", "ListParts", "rest-xml", {"Bucket": "b", "Parts": [{"PartNumber": 1, "Size": 5}, {"PartNumber": 2}]}),
    ("s3", "ListObjectsV2", "rest-xml", {"CommonPrefixes": [{"Prefix": "a/"}], "MaxKeys": 0, "IsTruncated": False}),
    (
        "s3",
        "GetBucketAcl",
        "rest-xml",
        {"Owner": {"ID": "o"}, "Grants": [{"Grantee": {"Type": "CanonicalUser", "ID": "o"}, "Permission": "READ"}]},
    ),
]


@pytest.mark.parametrize(("service", "name", "form", "members"), REPLIES, ids=lambda value: str(value)[:40])
def test_botocore_reads_back_what_was_written(service: str, name: str, form: str, members: dict[str, Any]) -> None:
    reply = operation(service, name, form, "1.0").write({**members, "Stray": 1}, "request-1")
    parser = botocore.parsers.create_parser(form)
    headers = {key.decode(): value.decode() for key, value in reply.headers}
    shape = service_model(service).operation_model(name).output_shape
    parsed = parser.parse({"status_code": reply.status, "headers": headers, "body": reply.body}, shape)
    parsed.pop("ResponseMetadata")
    assert parsed == members


def test_errors_are_collected_with_their_paths() -> None:
    check = compile_check(service_model("sagemaker").operation_model("CreateEndpointConfig").input_shape)
    members = {
        "EndpointConfigName": "ok",
        "ProductionVariants": [{"VariantName": "bad name", "InitialInstanceCount": 0, "InstanceType": "local"}],
    }
    with pytest.raises(AwsError) as caught:
        refuse_invalid(check, members)
    text = caught.value.message
    assert text.startswith("2 validation errors detected: ")
    assert "Value 'bad name' at 'productionVariants.1.member.variantName' failed to satisfy constraint: Member" in text
    assert "Value '0' at 'productionVariants.1.member.initialInstanceCount'" in text


def test_a_long_value_does_not_make_a_long_message() -> None:
    check = compile_check(service_model("sagemaker").operation_model("DescribeTrainingJob").input_shape)
    with pytest.raises(AwsError) as caught:
        refuse_invalid(check, {"TrainingJobName": "x" * 1_000_000})
    assert len(caught.value.message) < 1000


def test_a_body_of_many_faults_makes_a_short_message() -> None:
    check = compile_check(service_model("sagemaker").operation_model("AddTags").input_shape)
    with pytest.raises(AwsError) as caught:
        refuse_invalid(check, {"ResourceArn": "arn:x", "Tags": [{}] * 100_000})
    assert len(caught.value.message) < 4000


def test_the_size_of_an_invocation_is_not_the_models_business() -> None:
    check = compile_check(service_model("sagemaker-runtime").operation_model("InvokeEndpoint").input_shape)
    refuse_invalid(check, {"EndpointName": "e", "Body": b"x" * 7_000_000})
