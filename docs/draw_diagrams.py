"""Draws the diagrams of the documentation, SVGs whose text is text: `make reference` writes them to `docs/pictures`.

    python docs/draw_diagrams.py

The schedule is read from the output in `docs/model-parallel.md`, which a test holds to the engine. A test fails if a
picture is older than this file or that page. The site loads no library to draw, and no file of another host.
"""

import re
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path
from xml.sax.saxutils import escape

__all__ = ["DIAGRAMS", "PICTURES", "main"]

PICTURES = Path(__file__).with_name("pictures")
WIDTH = 860
LINE = 17
LIGHT = {
    "back": "#fff",
    "ink": "#1f2937",
    "dim": "#5b6472",
    "edge": "#8791a1",
    "box": "#eef2f7",
    "user": "#fdf0d5",
    "kept": "#e3f4e8",
}
DARK = {
    "back": "#161b22",
    "ink": "#e6edf3",
    "dim": "#9da7b3",
    "edge": "#6e7681",
    "box": "#242c38",
    "user": "#493a1b",
    "kept": "#1c3d2a",
}


def style(colors: dict[str, str]) -> str:
    """Return the rules that use colors. Colors of SVG by variables are black in programs that are no browser."""
    rules = [
        "text{{fill:{ink}}} .dim{{fill:{dim}}} rect{{stroke:{edge};fill:{box}}} path{{stroke:{dim};fill:none}}",
        ".user{{fill:{user}}} .kept{{fill:{kept}}} .back{{fill:{back};stroke:none}} .head{{fill:{dim};stroke:none}}",
        ".frame{{fill:none}}",
    ]
    return " ".join(rules).format(**colors)


def text(x: float, y: float, words: str, look: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{look}" text-anchor="{anchor}">{escape(words)}</text>'


def rect(x: float, y: float, width: float, height: float, look: str = "") -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" class="{look}"/>'


def box(x: float, y: float, width: float, lines: list[str], look: str = "") -> str:
    """Draw a box with a title and lines below it, all centered."""
    words = [
        text(x + width / 2, y + 19 + LINE * number, line, "dim" if number else "bold", "middle")
        for number, line in enumerate(lines)
    ]
    return rect(x, y, width, 11 + LINE * len(lines), look) + "".join(words)


def frame(x: float, y: float, width: float, height: float, title: str) -> str:
    return rect(x, y, width, height, "frame") + text(x + 10, y + 19, title, "dim")


def arrow(
    *points: tuple[float, float], label: str = "", at: tuple[float, float] = (0, 0), anchor: str = "middle"
) -> str:
    """Draw a line with a head at its last point, and a label whose baseline is at `at`."""
    path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
    return f'<path d="{path}" marker-end="url(#head)"/>' + (text(*at, label, "dim", anchor) if label else "")


def picture(title: str, height: int, parts: list[str]) -> str:
    """Return an SVG of the parts."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
            ' role="img" font-family="system-ui, -apple-system, Segoe UI, sans-serif" font-size="13">',
            f"<title>{escape(title)}</title>",
            f"<style>{style(LIGHT)} .bold{{font-weight:600}} .frame{{stroke-dasharray:5 4}}",
            f"@media(prefers-color-scheme:dark){{{style(DARK)}}}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"'
            ' orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z" class="head"/></marker></defs>',
            rect(0, 0, WIDTH, height, "back"),
            *parts,
            "</svg>",
            "",
        ]
    )


def processes() -> str:
    """Return the picture of the processes of a service, a job and an endpoint."""
    parts = [
        box(20, 40, 190, ["client", "your code with", "tidemill.sdk, boto3, aws"], "user"),
        box(
            320, 20, 250, ["service", "AWS's protocols, policies", "S3, logs, metrics", "a task for each job, endpoint"]
        ),
        box(660, 20, 180, ["database", "SQLite or PostgreSQL"], "kept"),
        box(660, 86, 180, ["state directory", "contents of S3, log lines"], "kept"),
        arrow((210, 71), (320, 71), label="signed HTTP", at=(265, 62)),
        arrow((570, 43), (660, 43)),
        arrow((570, 85), (660, 108)),
        arrow((345, 99), (345, 222), label="starts it by a file", at=(336, 150), anchor="end"),
        arrow((385, 222), (385, 99), label="phases, by files", at=(394, 150), anchor="start"),
        arrow((550, 99), (550, 222), label="starts it by a file, sends requests", at=(559, 150), anchor="start"),
        text(
            430,
            430,
            "What is in the dashed frames continues without the service; the next service finds it.",
            "dim",
            "middle",
        ),
    ]
    job = "instance of a job, a session of its own"
    parts += _instance(20, job, "data, limits, log lines, upload of the model", RUNTIME, SCRIPT)
    parts += _instance(440, "endpoint", "the model archive, restarts", SERVER, WORKERS)
    return picture("The processes of a service, a job and an endpoint", 446, parts)


RUNTIME, SCRIPT = ["runtime", "SM_* variables", "mpirun"], ["script", "train.py, or", "one for each rank"]
SERVER, WORKERS = ["model server", "REST, gRPC", "TensorFlow"], ["workers", "inference.py", "of your code"]


def _instance(x: float, title: str, shim: str, runs: list[str], user: list[str]) -> list[str]:
    """Draw an instance: its shim, and in the sandbox what the shim runs and the user's code."""
    return [
        frame(x, 190, 400, 216, title),
        box(x + 20, 222, 360, ["shim", shim]),
        frame(x + 20, 288, 360, 104, "sandbox"),
        box(x + 34, 318, 140, runs),
        box(x + 226, 318, 140, user, "user"),
        arrow((x + 174, 346), (x + 226, 346)),
        arrow((x + 134, 267), (x + 134, 318)),
    ]


STATES = (
    ("Starting", "committed;", "the service", "plans it"),
    ("Downloading", "the shim links", "or fetches", "the data"),
    ("Training", "the script", "runs in", "the sandbox"),
    ("Uploading", "model.tar.gz", "is packed", "and published"),
    ("Completed", "the last state", "is committed,", "then clean-up"),
)


def life() -> str:
    """Return the picture of the secondary statuses of a job."""
    step, width, top = 168, 128, 130
    parts = [
        box(20 + step * number, top, width, list(lines), "kept" if lines[0] == "Completed" else "")
        for number, lines in enumerate(STATES)
    ]
    edges = [20 + step * number for number in range(len(STATES))]
    parts += [arrow((left + width, top + 40), (right, top + 40)) for left, right in pairwise(edges)]
    middle = [edge + width / 2 for edge in edges]
    parts += [
        box(20, 20, width, ["your request", "CreateTrainingJob"], "user"),
        arrow(
            (middle[0] - 20, 65), (middle[0] - 20, top), label="refused, or kept for good", at=(76, 92), anchor="start"
        ),
        box(20, 250, width, ["Pending", "until an instance", "is free"]),
        arrow((middle[0] - 20, 209), (middle[0] - 20, 250)),
        arrow((middle[0] + 20, 250), (middle[0] + 20, 209)),
        box(
            edges[2] - 26,
            250,
            width + 52,
            ["Interrupted, Restarting", "the instance was lost;", "checkpoints are kept"],
        ),
        arrow((middle[2], 209), (middle[2], 250)),
        arrow(
            (edges[2] - 26, 285),
            (middle[1] - 30, 285),
            (middle[1] - 30, 230),
            (edges[0] + width - 12, 230),
            (edges[0] + width - 12, 209),
            label="next attempt",
            at=(middle[1] - 24, 277),
            anchor="start",
        ),
        box(edges[3] + 6, 250, width + 34, ["Stopping, Stopped", "SIGTERM, later SIGKILL;", "the model is kept"]),
        arrow(
            (middle[3], 209), (middle[3], 250), label="a stop, in any state", at=(middle[3] + 10, 233), anchor="start"
        ),
        box(edges[4] + 6, 40, width - 6, ["Failed", "FailureReason", "says why"]),
        arrow((middle[2], top), (middle[2], 66), (edges[4] + 6, 66), label="an error, in any state", at=(560, 60)),
        text(
            430,
            346,
            "After the commit the service may be killed in any state: the next one continues.",
            "dim",
            "middle",
        ),
    ]
    return picture("The life of a job, by its secondary status", 362, parts)


def step() -> str:
    """Return the picture of a pipelined step: four partitions, eight microbatches."""
    page = PICTURES.with_name("model-parallel.md").read_text()
    output = page[page.index("interleaved, active_microbatches=None: idle") :]
    rows = re.findall(r"^partition (\d+)  (\S+)$", output, re.MULTILINE)[:4]
    unit, left, top, height = 22.5, 100, 40, 30
    parts = [text(left, 24, "time", "dim"), arrow((left + 34, 20), (left + 110, 20))]
    for number, (partition, line) in enumerate(rows):
        y = top + number * (height + 8)
        parts.append(text(12, y + 20, f"partition {partition}"))
        for start, mark in _tasks(line):
            width = unit * (len(mark) if mark[0].isalpha() else 1)
            name = "abcdefgh".index(mark[0]) + 1 if mark[0].isalpha() else int(mark)
            parts.append(rect(left + unit * start, y, width - 1.5, height, "kept" if mark[0].isalpha() else "user"))
            parts.append(text(left + unit * start + width / 2 - 1, y + 20, str(name), anchor="middle"))
    y = top + len(rows) * (height + 8) + 12
    parts += [
        rect(left, y, 20, 20, "user"),
        text(left + 28, y + 15, "forward pass of a microbatch"),
        rect(left + 240, y, 44, 20, "kept"),
        text(left + 292, y + 15, "its backward pass, twice as long"),
        text(left + 520, y + 15, "empty: the partition waits", "dim"),
        text(left, y + 46, "A partition runs a backward pass as soon as it can, so it keeps few activations.", "dim"),
    ]
    return picture("A step of model parallelism: four partitions, eight microbatches", y + 62, parts)


def _tasks(line: str) -> Iterator[tuple[int, str]]:
    """Yield the start and the characters of each task of a line of the schedule."""
    at = 0
    for character, same in groupby(line):
        length = len(list(same))
        if character != "·":
            yield at, character * length
        at += length


DIAGRAMS = {"processes.svg": processes, "life-of-a-job.svg": life, "pipelined-step.svg": step}
"""The diagrams by file name, in `docs/pictures`."""


def main() -> None:
    """Write the diagrams."""
    for name, draw in DIAGRAMS.items():
        (PICTURES / name).write_text(draw())


if __name__ == "__main__":
    main()
