"""Lines and progress bars in a stream of output."""

import random

import pytest

from tidemill.core.segments import MESSAGE_MAX_BYTES
from tidemill.shim.lines import STATE_EVERY_S, LineSplitter


def fed(*pieces: bytes, seconds_between: float = 0.0) -> list[bytes]:
    """Feed pieces at equal intervals; return all lines, including those at the end."""
    splitter = LineSplitter()
    lines = []
    for number, piece in enumerate(pieces):
        lines += splitter.feed(piece, number * seconds_between)
    return lines + splitter.end()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"one\ntwo\n", [b"one", b"two"]),
        (b"one\n\ntwo", [b"one", b"", b"two"]),
        (b"one\r\ntwo\r\ntwo\r\n", [b"one", b"two", b"two"]),
        (b"\xff\x00\tbytes\n", [b"\xff\x00\tbytes"]),
        (b"\x1b[31mred\x1b[0m and \x1b]8;;http://a\x1b\\linked\x1b]8;;\x07\n", [b"red and linked"]),
        (b"1/2\x08\x08\x082/2\n", [b"1/22/2"]),
        (b"a\x1b", [b"a"]),
        (b"\r\n", [b""]),
        (b"", []),
    ],
)
def test_text_is_cut_at_line_feeds_wherever_it_arrives_in_pieces(text: bytes, lines: list[bytes]) -> None:
    assert fed(text) == lines
    assert fed(*(text[i : i + 1] for i in range(len(text)))) == _with_states(text, lines)


def _with_states(text: bytes, lines: list[bytes]) -> list[bytes]:
    """Add the state that is passed on byte by byte: there the CR of CR LF ends a state until the LF arrives."""
    first = [line for line in lines if line][:1]
    return [first[0] + b"\r", *lines] if b"\r" in text and first else lines


def test_a_bar_is_one_line_when_it_ends_and_its_first_state_is_passed_on_at_once() -> None:
    bar = [b"\r%3d%%|" % percent for percent in range(0, 101, 10)]
    assert fed(*bar, b"\n") == [b"  0%|\r", b"100%|"]


def test_states_are_passed_on_at_most_every_half_second_and_the_latest_of_them() -> None:
    splitter = LineSplitter()
    passed = {}
    for step in range(40):  # ten per second
        for line in splitter.feed(b"\rstep %d" % step, step / 10):
            passed[step] = line
    assert passed == {step: b"step %d\r" % step for step in range(0, 40, 5)}


def test_a_state_that_waits_is_passed_on_when_time_has_come_though_no_data_does() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"\r1/3", 10.0) == [b"1/3\r"]
    assert splitter.due_s is None
    assert splitter.feed(b"\r2/3", 10.1) == []
    assert splitter.due_s == 10.0 + STATE_EVERY_S
    assert splitter.feed(b"", 10.3) == []
    assert splitter.feed(b"", 10.5) == [b"2/3\r"]
    assert splitter.due_s is None


def test_text_without_a_line_end_and_without_carriage_return_is_no_state() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"name? ", 0.0) == []
    assert splitter.due_s is None
    assert splitter.end() == [b"name? "]


def test_a_bar_that_is_erased_leaves_nothing() -> None:
    assert fed(b"\r 50%", b"\r     \r", b"done\n") == [b" 50%\r", b"done"]


def test_nested_bars_repeat_no_line_of_the_outer_one() -> None:
    steps = [b"\r outer 0/2"]
    for inner in range(20):
        steps += [b"\n", b"\r inner %d/20" % inner, b"\x1b[A"]
    lines = fed(*steps, b"\r outer 1/2", seconds_between=0.01)
    assert lines.count(b" outer 0/2") == 1
    assert len(lines) <= 5


def test_bars_of_keras_2_are_drawn_with_backspaces() -> None:
    assert fed(b"1/2 [==>...]", b"\x08" * 12 + b"\r2/2 [=====]", b"\n") == [b"2/2 [=====]\r", b"2/2 [=====]"]


def test_a_stream_that_never_ends_a_line_is_cut_at_the_longest_event() -> None:
    text = b"x" * (2 * MESSAGE_MAX_BYTES + 10)
    lines = fed(*(text[i : i + 65536] for i in range(0, len(text), 65536)))
    assert b"".join(lines) == text
    assert all(len(line) <= MESSAGE_MAX_BYTES for line in lines)


def test_no_cursor_control_is_ever_passed_on() -> None:
    rng = random.Random(4)
    alphabet = [b"a", b"b", b" ", b"\n", b"\r", b"\x08", b"\x1b[2K", b"\x1b[A", b"\x1b", b"[", b"]0;t\x07", b"\xc3\xa4"]
    for _ in range(2000):
        pieces = [b"".join(rng.choices(alphabet, k=rng.randrange(6))) for _ in range(8)]
        for line in fed(*pieces, seconds_between=rng.choice([0.0, 0.2, 1.0])):
            assert not set(line.removesuffix(b"\r")) & set(b"\r\x08\x1b\n"), (pieces, line)
