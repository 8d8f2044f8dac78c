"""The conversion of the body of an invocation."""

import json
from typing import Any

import pytest

from tidemill_serving.errors import RequestError
from tidemill_serving.rest.invocations import CustomAttributes, read_attributes, to_predict_body


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (b'{"instances": [1]}', b'{"instances": [1]}'),
        (b'{"signature_name": "s", "inputs" : 1}', b'{"signature_name": "s", "inputs" : 1}'),
        (b'{"examples":[]}', b'{"examples":[]}'),
        (b"[1,2,5]", b'{"instances":[[1,2,5]]}'),
        (b"[[1,2],[3,4]]", b'{"instances":[[1,2],[3,4]]}'),
        (b"5", b'{"instances":[5]}'),
        (b'{"x": 1}', b'{"instances":[{"x": 1}]}'),
        (b'{"x": 1}\n{"x": 2}\n', b'{"instances":[{"x": 1},{"x": 2}]}'),
        (b"[1, 2]\n\n[3, 4]", b'{"instances":[[1, 2],[3, 4]]}'),
        (b"[1] [2]", b'{"instances":[1] [2]}'),
        (b"  ", b""),
    ],
)
@pytest.mark.parametrize("content_type", [b"application/json", b"application/jsonlines", b"application/jsons"])
def test_the_form_of_json_follows_its_text(body: bytes, sent: bytes, content_type: bytes) -> None:
    assert to_predict_body(body, content_type) == sent


@pytest.mark.parametrize(
    ("body", "instances"),
    [
        ("1\n2\n5\n", [1, 2, 5]),
        ("1,2\n3.5,-4e2\r\n", [[1, 2], [3.5, -400.0]]),
        ("+1,.5,007, 3.", [[1, 0.5, 7, 3.0]]),
        ("abc\nd e", ["abc", "d e"]),
        ("abc,1,2", [["abc", "1", "2"]]),
        ('"a, ""b""",2', [['a, "b"', 2]]),
        ("1,abc", [[1, "abc"]]),
        ('"5"', ["5"]),
        ("a,,b", [["a", "", "b"]]),
        ("a\u2028b,c\x85d\r\ne,", [["a\u2028b", "c\x85d"], ["e", ""]]),
        ("\u0663,1", [["\u0663", "1"]]),
        ("1,\u0663", [[1, "\u0663"]]),
        ("+007.50e+1,-.5", [[75.0, -0.5]]),
        ("+" + "0" * 20_000 + "1,2", [[1, 2]]),
    ],
)
def test_every_csv_line_is_an_instance(body: str, instances: list[Any]) -> None:
    assert json.loads(to_predict_body(body.encode(), b"text/csv")) == {"instances": instances}


def test_csv_that_cannot_be_read_is_refused() -> None:
    for body, text in ((b'"a"b,1', "quoted field"), (b"\xff", "not UTF-8")):
        with pytest.raises(RequestError, match=text):
            to_predict_body(body, b"text/csv")


@pytest.mark.parametrize(
    ("content_type", "name"),
    [(b"", "Unknown"), (b"text/plain", "text/plain"), (b"application/json; charset=utf-8",) * 2],
)
def test_another_content_type_is_415_with_the_list_of_accepted_types(content_type: bytes, name: str | bytes) -> None:
    with pytest.raises(RequestError) as refused:
        to_predict_body(b"1", content_type)
    shown = name.decode() if isinstance(name, bytes) else name
    assert (refused.value.http_status, refused.value.message) == (415, f"Unsupported Media Type: {shown}")
    types = "application/json, application/jsonlines, application/jsons, text/csv, application/x-npy"
    assert refused.value.headers == (("Accept-Post", types),)


def test_custom_attributes_choose_model_version_and_method() -> None:
    header = b"tfs-model-name=m,tfs-model-version=3,tfs-method=regress,other=1"
    assert read_attributes(header) == CustomAttributes("m", 3, "regress")
    assert read_attributes(b"") == CustomAttributes(None, None, "predict")


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (b"tfs-model-version=new", "Failed to convert version: new"),
        (b"tfs-model-version=9223372036854775808", "Failed to convert version: 9223372036854775808"),
        (b"tfs-method=train", "tfs-method=train"),
    ],
)
def test_custom_attributes_that_cannot_be_followed_are_refused(header: bytes, text: str) -> None:
    with pytest.raises(RequestError, match=text):
        read_attributes(header)
