"""What is printed, and how, on a terminal and elsewhere."""

import io

from tidemill.sdk.console import Console


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_elsewhere_everything_is_plain_and_unchanged() -> None:
    stream = io.StringIO()
    console = Console(stream, variables={})
    console.say("ours")
    console.log("\x1b[31mred\x1b[0m\ttab", colour=1)
    console.rewrite("10 %")
    assert stream.getvalue() == "ours\n\x1b[31mred\x1b[0m\ttab\n"


def test_on_a_terminal_escapes_of_a_job_are_dropped_and_ours_are_dim() -> None:
    stream = Terminal()
    console = Console(stream, variables={})
    console.say("ours")
    console.log("a\x1b[2Jb\x9bc")
    console.log("two", colour=0)
    assert stream.getvalue() == "\x1b[2mours\x1b[0m\na[2Jbc\n\x1b[36mtwo\x1b[0m\n"


def test_no_color_leaves_no_escape_at_all() -> None:
    stream = Terminal()
    console = Console(stream, variables={"NO_COLOR": "1"})
    console.say("ours")
    console.log("a\x1b[2Jb", colour=0)
    console.rewrite("10 %")
    assert "\x1b" not in stream.getvalue()


def test_escapes_are_kept_for_whoever_asks() -> None:
    stream = Terminal()
    Console(stream, variables={}, keep_escapes=True).log("\x1b[31mred")
    assert stream.getvalue() == "\x1b[31mred\n"


def test_a_character_that_the_stream_cannot_show_is_marked_not_lost() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    Console(stream).log("caf\u00e9")
    assert raw.getvalue() == b"caf\\xe9\n"
