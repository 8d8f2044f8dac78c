"""A decision as a picture: bars for a terminal, Graphviz text, and an SVG that needs nothing but a browser."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from smdistributed.modelparallel.tensorflow.partitioning.report import PartitionReport, PartitionRow

__all__ = ["bars", "dot", "svg"]

COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#edc948", "#76b7b2", "#e15759", "#9c755f")
BLOCK, SHADE = "█", "░"
ROW_HEIGHT, LANE, GAP, LEFT, TEXT_WIDTH = 22, 250, 40, 20, 7
SHOWN_ROWS = 40


def bars(report: PartitionReport, *, width: int = 48) -> str:
    """Time and memory of each partition beside the largest one; shaded is communication, and what activations take.

    Args:
        report: What is drawn.
        width: Characters of the longest bar.
    """
    rows = report.rows
    times = [(row.compute_us, row.time_us - row.compute_us) for row in rows]
    sizes = [(row.parameter_bytes + row.slot_bytes, _beyond_weights(row)) for row in rows]
    lines = [f"time per microbatch ({BLOCK} compute, {SHADE} communication)"]
    lines += _bar_lines(rows, times, [f"{row.time_us / 1000:.3f} ms" for row in rows], width)
    lines.append(f"memory ({BLOCK} parameters and slots, {SHADE} activations)")
    lines += _bar_lines(rows, sizes, [f"{row.bytes / 1e6:,.3f} MB" for row in rows], width)
    return "\n".join(lines)


def dot(report: PartitionReport) -> str:
    """The graph of units for Graphviz, one cluster per partition; edges between partitions are bold and show bytes."""
    lines = ["digraph partitions {", "  rankdir=TB;", '  node [shape=box, style=filled, fontname="Helvetica"];']
    for row in report.rows:
        colour = COLOURS[row.partition % len(COLOURS)]
        lines += [f"  subgraph cluster_{row.partition} {{", f'    label="partition {row.partition}";']
        lines += [f'    {_quoted(name)} [fillcolor="{colour}55"];' for name in row.units]
        lines.append("  }")
    home = _homes(report)
    for edge in report.graph.edges:
        crossing = f' [penwidth=3, label="{_size(edge.bytes)}"]' if home[edge.source] != home[edge.target] else ""
        lines.append(f"  {_quoted(edge.source)} -> {_quoted(edge.target)}{crossing};")
    return "\n".join([*lines, "}", ""])


def svg(report: PartitionReport) -> str:
    """One lane per partition with its units from top to bottom, bars of their time, and the tensors that cross."""
    shown = max((min(len(row.units), SHOWN_ROWS) for row in report.rows), default=0)
    width = 2 * LEFT + len(report.rows) * LANE + (len(report.rows) - 1) * GAP
    height = 120 + (shown + 1) * ROW_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif" font-size="12">',
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="#444"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    times = {unit.name: unit.time_us for unit in report.graph.units}
    longest = max(times.values(), default=0.0) or 1.0
    for row in report.rows:
        parts += _lane(report, row, {name: times[name] / longest for name in row.units}, height)
    parts += _crossings(report)
    parts += [
        f'<text x="{LEFT}" y="{height - 38 + 16 * i}" fill="#444">{escape(line)}</text>'
        for i, line in enumerate(report.summary().splitlines()[1:])
    ]
    return "\n".join([*parts, "</svg>", ""])


def _bar_lines(
    rows: Sequence[PartitionRow], values: Sequence[tuple[float, float]], labels: Sequence[str], width: int
) -> list[str]:
    largest = max(a + b for a, b in values) or 1
    lines = []
    for row, (a, b), label in zip(rows, values, labels, strict=True):
        whole, solid = round(width * (a + b) / largest), round(width * a / largest)
        lines.append(f"  {row.partition:>2} {BLOCK * solid}{SHADE * (whole - solid)} {label}")
    return lines


def _beyond_weights(row: PartitionRow) -> int:
    return row.bytes - row.parameter_bytes - row.slot_bytes


def _homes(report: PartitionReport) -> dict[str, int]:
    return {unit.name: part for unit, part in zip(report.graph.units, report.assignment, strict=True)}


def _lane(report: PartitionReport, row: PartitionRow, share: dict[str, float], height: int) -> list[str]:
    x, colour = _lane_x(row.partition), COLOURS[row.partition % len(COLOURS)]
    title = f"partition {row.partition}: {row.time_us / 1000:.3f} ms, {_size(row.bytes)}"
    parts = [
        f'<rect x="{x}" y="10" width="{LANE}" height="{height - 70}" rx="6" fill="{colour}" fill-opacity="0.12"/>',
        f'<text x="{x + 8}" y="28" font-weight="bold">{escape(title)}</text>',
    ]
    for i, name in enumerate(row.units[:SHOWN_ROWS]):
        y = _row_y(i)
        parts += [
            f'<rect x="{x + 8}" y="{y}" width="{LANE - 16}" height="{ROW_HEIGHT - 4}" fill="white" stroke="{colour}"/>',
            f'<rect x="{x + 8}" y="{y}" width="{(LANE - 16) * share[name]:.1f}" height="{ROW_HEIGHT - 4}" '
            f'fill="{colour}" fill-opacity="0.5"/>',
            f'<text x="{x + 12}" y="{y + 13}"><title>{escape(name)}</title>{escape(_short(name))}</text>',
        ]
    if len(row.units) > SHOWN_ROWS:
        parts.append(
            f'<text x="{x + 12}" y="{_row_y(SHOWN_ROWS) + 13}">and {len(row.units) - SHOWN_ROWS} more units</text>'
        )
    return parts


def _crossings(report: PartitionReport) -> list[str]:
    home = _homes(report)
    place = {name: i for row in report.rows for i, name in enumerate(row.units)}
    parts = []
    for edge in report.graph.edges:
        a, b = home[edge.source], home[edge.target]
        if a == b:
            continue
        x1, x2 = _lane_x(a) + LANE - 8, _lane_x(b) + 8
        if b < a:
            x1, x2 = _lane_x(a) + 8, _lane_x(b) + LANE - 8
        y1, y2 = (_row_y(min(place[end], SHOWN_ROWS)) + ROW_HEIGHT // 2 - 2 for end in (edge.source, edge.target))
        label = escape(f"{edge.source} -> {edge.target}: {_size(edge.bytes)}")
        parts.append(
            f'<path d="M{x1} {y1} C{(x1 + x2) // 2} {y1} {(x1 + x2) // 2} {y2} {x2} {y2}" fill="none" stroke="#444" '
            f'stroke-width="1.5" marker-end="url(#tip)"><title>{label}</title></path>'
        )
    return parts


def _lane_x(part: int) -> int:
    return LEFT + part * (LANE + GAP)


def _row_y(i: int) -> int:
    return 40 + i * ROW_HEIGHT


def _short(name: str) -> str:
    most = (LANE - 24) // TEXT_WIDTH
    return name if len(name) <= most else f"...{name[-(most - 3) :]}"


def _size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.1f} kB"


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
