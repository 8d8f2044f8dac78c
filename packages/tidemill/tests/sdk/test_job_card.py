"""The card of a training job in a notebook: what it shows, and that hostile text changes nothing."""

from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import pytest

from tidemill.sdk.job_card import LiveCard, Point, card

BEGIN = datetime(2026, 11, 27, 8, tzinfo=UTC)


def described(**members: Any) -> dict[str, Any]:
    return {
        "TrainingJobName": "digits",
        "TrainingJobStatus": "InProgress",
        "SecondaryStatus": "Training",
        "CreationTime": BEGIN,
        "ResourceConfig": {"InstanceCount": 2, "InstanceType": "ml.m5.large"},
        "HyperParameters": {"rate": "0.5", "name": '"adam"', "sagemaker_program": '"train.py"', "db_password": '"x1y"'},
        "SecondaryStatusTransitions": [
            {"Status": "Downloading", "StartTime": BEGIN, "EndTime": BEGIN + timedelta(seconds=30)},
            {"Status": "Training", "StartTime": BEGIN + timedelta(seconds=30)},
        ],
        **members,
    }


def points(*values: float) -> list[Point]:
    return [(BEGIN + timedelta(seconds=10 * number), value) for number, value in enumerate(values)]


def drawn(**members: Any) -> str:
    curves = members.pop("curves", {})
    return card(described(**members), curves, now=BEGIN + timedelta(seconds=120))


def test_a_card_shows_state_phases_curves_and_hyperparameters() -> None:
    shown = drawn(curves={"loss": points(3.0, 2.0, 1.5)})
    for text in ("Training job digits", "InProgress", "2 x ml.m5.large", "Downloading 30s, Training 1m 30s", "adam"):
        assert text in shown
    assert "loss 1.5 (min 1.5, max 3)" in shown
    assert "sagemaker_program" not in shown
    assert "(hidden)" in shown and "x1y" not in shown
    bars = [float(each.get("width", "0")) for each in ElementTree.fromstring(svg(shown, 0))]
    assert bars == pytest.approx([70.0, 210.0])  # as wide as the phases lasted
    line = ElementTree.fromstring(svg(shown, 1))[0].get("points", "").split()
    heights = [float(each.partition(",")[2]) for each in line]
    assert heights[0] < heights[1] < heights[2]  # downwards on the screen, as the loss falls
    assert [float(each.partition(",")[0]) for each in line][:3] == [0.0, 140.0, 280.0]


def test_points_that_are_no_numbers_are_left_out_of_a_curve() -> None:
    shown = drawn(curves={"loss": points(float("nan"), 2.0, float("inf")), "nothing": points(float("nan"))})
    assert "loss 2 (min 2, max 2)" in shown
    assert "nan" not in shown and "inf" not in shown and "nothing" not in shown


@pytest.mark.parametrize(
    "text",
    ["<script>alert(1)</script>", "'><img src=x onerror=alert(1)>", "\u202e\x1b[31m<b>\x00", "x" * 1_000_000],
    ids=["script", "attribute", "controls", "long"],
)
def test_hostile_text_is_text(text: str) -> None:
    members = {
        "TrainingJobName": text,
        "SecondaryStatus": text,
        "FailureReason": text,
        "HyperParameters": {text[:200]: text},
        "ResourceConfig": {"InstanceCount": 1, "InstanceType": text},
        "ModelArtifacts": {"S3ModelArtifacts": text},
        "SecondaryStatusTransitions": [{"Status": text, "StartTime": BEGIN}],
    }
    shown = drawn(curves={text: points(1.0, 2.0)}, **members)
    assert len(shown) < 20_000
    tags = {each.tag for each in ElementTree.fromstring(f"<html>{shown}</html>").iter()}
    assert tags <= {
        *("html", "div", "table", "caption", "b", "tr", "th", "td", "svg", "rect", "small", "br"),
        *("figure", "figcaption", "polyline", "pre"),
    }
    assert not {"\u202e", "\x1b", "\x00"} & set(shown)


def test_outside_of_a_notebook_there_is_no_card() -> None:
    assert LiveCard.here(object()) is None


def svg(shown: str, number: int) -> str:
    return f"<svg{shown.split('<svg')[number + 1].partition('</svg>')[0]}</svg>"
