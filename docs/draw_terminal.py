"""Draw what a command prints as a terminal, an SVG whose text is text: `make picture` draws `docs/pictures/fit.svg`.

    python docs/draw_terminal.py PICTURE.svg --title TEXT [--head N] [--tail N] -- COMMAND...

The command runs as written; the picture shows it, its first lines, an ellipsis, and its last lines.
"""

import argparse
import re
import shlex
import subprocess
from pathlib import Path
from xml.sax.saxutils import escape

COLUMNS = 96
LINE_PX, CHARACTER_PX, MARGIN_PX, TITLE_PX = 18, 7.8, 14, 30
PLAIN, BRIGHT, DIM, GOOD = "#c9d1d9", "#ffffff", "#7d8590", "#7ee787"
STYLES = (
    (re.compile(r"\$ "), BRIGHT),
    (re.compile(r"(tidemill: |\.\.\.|\d\d:\d\d:\d\d )"), DIM),
    (re.compile(r"(Training job .*Completed|accuracy on held-out)"), GOOD),
)


def color(line: str) -> str:
    return next((color for pattern, color in STYLES if pattern.match(line)), PLAIN)


def lines_of(command: list[str], *, head: int, tail: int) -> list[str]:
    """Run a command and return what the picture shows."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    lines = done.stdout.replace(f"{Path.cwd()}/", "").splitlines()
    printed = [line if len(line) <= COLUMNS else line[: COLUMNS - 3] + "..." for line in lines]
    if len(printed) > head + tail + 1:
        printed = [*printed[:head], "...", *printed[-tail:]]
    return [f"$ {shlex.join(command)}", *printed]


def draw(lines: list[str], *, title: str) -> str:
    """Return the SVG."""
    width = round(2 * MARGIN_PX + COLUMNS * CHARACTER_PX)
    height = TITLE_PX + 2 * MARGIN_PX + len(lines) * LINE_PX
    rows = [
        f'<text x="{MARGIN_PX}" y="{TITLE_PX + MARGIN_PX + (number + 1) * LINE_PX - 5}" fill="{color(line)}">'
        f"{escape(line)}</text>"
        for number, line in enumerate(lines)
    ]
    buttons = "".join(f'<circle cx="{16 + 18 * n}" cy="{TITLE_PX / 2}" r="5" fill="#4b535d"/>' for n in range(3))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
            ' role="img" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="13">',
            f"<title>{escape(title)}</title>",
            "<style>text{white-space:pre}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#161b22"/>',
            buttons,
            *rows,
            "</svg>",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--title", required=True, help="what the picture shows, for those who cannot see it")
    parser.add_argument("--head", type=int, default=7, help="lines at the beginning (7)")
    parser.add_argument("--tail", type=int, default=16, help="lines at the end (16)")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    lines = lines_of(arguments.command, head=arguments.head, tail=arguments.tail)
    arguments.picture.parent.mkdir(exist_ok=True)
    arguments.picture.write_text(draw(lines, title=arguments.title))


if __name__ == "__main__":
    main()
