"""The output on a terminal and elsewhere."""

import io

import pytest

from tidemill.sdk.console import Console


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_elsewhere_everything_is_plain_and_unchanged() -> None:
    stream = io.StringIO()
    console = Console(stream, variables={})
    console.say("ours")
    console.log("\x1b[31mred\x1b[0m\ttab", instance="algo-2")
    console.rewrite("10 %")
    assert stream.getvalue() == "ours\n[algo-2] \x1b[31mred\x1b[0m\ttab\n"


def test_on_a_terminal_escapes_of_a_job_are_removed_and_notes_of_the_service_are_dim() -> None:
    stream = Terminal()
    console = Console(stream, variables={})
    console.say("ours")
    console.log("a\x1b[2Jb\x9bc")
    console.log("two", instance="algo-1")
    assert stream.getvalue() == "\x1b[2mours\x1b[0m\na[2Jbc\n\x1b[36mtwo\x1b[0m\n"


def test_no_color_leaves_no_escape_at_all() -> None:
    stream = Terminal()
    console = Console(stream, variables={"NO_COLOR": "1"})
    console.say("ours")
    console.log("a\x1b[2Jb", instance="algo-1")
    console.rewrite("10 %")
    assert "\x1b" not in stream.getvalue()


def test_escapes_are_kept_on_request() -> None:
    stream = Terminal()
    Console(stream, variables={}, keep_escapes=True).log("\x1b[31mred")
    assert stream.getvalue() == "\x1b[31mred\n"


def test_a_character_that_the_stream_cannot_show_is_marked_not_lost() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    Console(stream).log("caf\u00e9")
    assert raw.getvalue() == b"caf\\xe9\n"


def test_the_state_of_a_progress_bar_is_drawn_over_on_a_terminal() -> None:
    stream = Terminal()
    console = Console(stream, variables={})
    console.log("10 %\r")
    console.log("20 %\r", instance="algo-2")
    console.log("done")
    console.log("next")
    assert stream.getvalue() == "10 %\r\x1b[K\x1b[33m20 %\x1b[0m\r\x1b[Kdone\nnext\n"


def test_without_escapes_it_is_drawn_over_by_blanks() -> None:
    stream = Terminal()
    console = Console(stream, variables={"NO_COLOR": "1"})
    console.log("100 %\r")
    console.log("ok")
    assert stream.getvalue() == "100 %\r     \rok\n"


def test_a_notebook_draws_over_too() -> None:
    class OutStream(io.StringIO):
        """A stream like the one with which ipykernel replaces standard output."""

    OutStream.__module__ = "ipykernel.iostream"
    stream = OutStream()
    console = Console(stream, variables={})
    console.log("50 %\r")
    console.say("Completed")
    assert stream.getvalue() == "50 %\r    \rCompleted\n"


def test_elsewhere_a_state_is_a_line_like_others() -> None:
    stream = io.StringIO()
    console = Console(stream, variables={})
    console.log("10 %\r")
    console.log("done")
    assert stream.getvalue() == "10 %\ndone\n"


def test_a_state_wider_than_the_screen_is_cut_since_it_would_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    stream = Terminal()
    Console(stream, variables={}).log("x" * 50 + "\r")
    assert stream.getvalue() == "x" * 9


def test_elsewhere_states_of_a_users_bar_are_lines_and_of_our_own_progress_one_every_ten_seconds_is() -> None:
    now_s = 0.0
    stream = io.StringIO()
    console = Console(stream, variables={}, clock=lambda: now_s)
    for second in range(25):
        now_s = second
        console.log(f"tidemill: {second} MB\r")
    console.log("epoch 1\r")
    console.log("epoch 2\r")
    console.log("tidemill: ready")
    assert stream.getvalue() == "tidemill: 10 MB\ntidemill: 20 MB\nepoch 1\nepoch 2\ntidemill: ready\n"


def test_on_a_terminal_every_state_of_our_own_progress_is_drawn() -> None:
    stream = Terminal()
    console = Console(stream, variables={"NO_COLOR": "1"})
    console.log("tidemill: 1 MB\r")
    console.log("tidemill: 2 MB\r")
    console.log("tidemill: ready")
    assert [part.strip() for part in stream.getvalue().split("\r") if part.strip()] == [
        "tidemill: 1 MB",
        "tidemill: 2 MB",
        "tidemill: ready",
    ]
