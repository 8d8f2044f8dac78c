"""Placement by rules: the partition of each layer, by its name or path.

    {"embedding": 0, "block_[0-5]": 0, "block_*": 1, "re:head.*": 1, re.compile("pool"): 1}

A key is the name of a layer, its path (`encoder/block_3`), a glob, or a regular expression (compiled, or text after
`re:`). A pattern with a slash matches paths, one without matches names. A rule for a layer also applies to the layers
inside it; the innermost rule wins, as with `smp.partition` contexts. If several rules match the same layer, a full path
has precedence over a name, a name over a pattern, and an earlier pattern over a later one.
"""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TypeAlias

from smdistributed.modelparallel.backend.exceptions import SMPPartitionError
from smdistributed.modelparallel.tensorflow.partitioning.units import UnitGraph

Rules: TypeAlias = Mapping["str | re.Pattern[str]", int]

REGEX = "re:"


def match_layers(
    layer_paths: Iterable[str], rules: Rules, *, partitions: int, default: int | None = None
) -> dict[str, int]:
    """Return the partition of each layer by its path.

    Args:
        layer_paths: One path per layer, such as `encoder/block_1/dense`.
        rules: Partition by layer name, path, glob or regular expression.
        default: Partition of layers without a rule; None requires a rule for every layer.

    Raises:
        SMPPartitionError: If a partition does not exist, a rule names no layer, or a layer has no rule.
    """
    paths = list(dict.fromkeys(layer_paths))
    for key, part in rules.items():
        _check_index(part, partitions, f"rule {_text(key)!r}")
    if default is not None:
        _check_index(default, partitions, "default_partition")
    patterns = {key: _compiled(key) for key in rules if _is_pattern(key)}
    names = _names(paths)
    _check_used(rules, patterns, names)
    found: dict[str, int] = {}
    left: list[str] = []
    for path in paths:
        part = _innermost(path, rules, patterns)
        part = default if part is None else part
        if part is None:
            left.append(path)
        else:
            found[path] = part
    if left:
        raise SMPPartitionError(
            f"no rule names {_listed(left)}: add a rule for each layer, or give default_partition for the rest"
        )
    return found


def assign_by_rules(graph: UnitGraph, rules: Rules, *, partitions: int, default: int | None = None) -> tuple[int, ...]:
    """Return the partition of each unit. Glue follows its inputs, to the last of their partitions.

    Args:
        rules: As for `match_layers`.
        default: Partition of layers without a rule, and of glue without inputs (0 if None).

    Raises:
        SMPPartitionError: As `match_layers` does.
    """
    paths = [unit.layer_path for unit in graph.units if unit.layer_path]
    layers = match_layers(paths, rules, partitions=partitions, default=default)
    sources: dict[str, list[str]] = {}
    for edge in graph.edges:
        sources.setdefault(edge.target, []).append(edge.source)
    assigned: dict[str, int] = {}
    for unit in graph.units:
        inputs = [assigned[source] for source in sources.get(unit.name, ())]
        assigned[unit.name] = layers[unit.layer_path] if unit.layer_path else max(inputs, default=default or 0)
    return tuple(assigned[unit.name] for unit in graph.units)


def _check_index(part: object, partitions: int, what: str) -> None:
    if isinstance(part, bool) or not isinstance(part, int) or not 0 <= part < partitions:
        raise SMPPartitionError(
            f"{what} gives partition {part!r}: expected an integer from 0 to {partitions - 1}, since there are "
            f"{partitions} partitions"
        )


def _is_pattern(key: str | re.Pattern[str]) -> bool:
    return isinstance(key, re.Pattern) or key.startswith(REGEX) or any(mark in key for mark in "*?[")


def _compiled(key: str | re.Pattern[str]) -> re.Pattern[str] | str:
    """Return a compiled regular expression, or the glob unchanged."""
    if isinstance(key, re.Pattern):
        return key
    if not key.startswith(REGEX):
        return key
    try:
        return re.compile(key.removeprefix(REGEX))
    except re.error as error:
        raise SMPPartitionError(f"rule {key!r} is not a regular expression: {error}") from error


def _matches(pattern: re.Pattern[str] | str, name: str) -> bool:
    """Return whether a pattern matches: without a slash it is compared with names, else with paths level by level."""
    if isinstance(pattern, re.Pattern):
        return ("/" in pattern.pattern or "/" not in name) and bool(pattern.fullmatch(name))
    levels, globs = name.split("/"), pattern.split("/")
    return len(levels) == len(globs) and all(map(fnmatchcase, levels, globs))


def _forms(path: str) -> tuple[str, str]:
    """Return the path and the name by which a rule may refer to a layer."""
    return path, path.rpartition("/")[2]


def _names(paths: Iterable[str]) -> list[str]:
    """Return all paths and names by which rules may refer to the layers and their enclosing layers."""
    names: dict[str, None] = {}
    for path in paths:
        while path:
            names |= dict.fromkeys(_forms(path))
            path = path.rpartition("/")[0]
    return list(names)


def _check_used(
    rules: Rules, patterns: Mapping[str | re.Pattern[str], re.Pattern[str] | str], names: list[str]
) -> None:
    known = set(names)
    unknown = [
        key
        for key in rules
        if not (any(_matches(patterns[key], name) for name in names) if key in patterns else key in known)
    ]
    if not unknown:
        return
    lines = []
    for key in unknown:
        near = get_close_matches(_text(key), names, n=3)
        hint = f" (did you mean {', '.join(map(repr, near))}?)" if near else ""
        lines.append(f"{_text(key)!r}{hint}")
    raise SMPPartitionError(f"rules that name no layer of the model: {'; '.join(lines)}. Layers are: {_listed(names)}")


def _innermost(path: str, rules: Rules, patterns: Mapping[str | re.Pattern[str], re.Pattern[str] | str]) -> int | None:
    while path:
        for name in _forms(path):
            if name in rules and name not in patterns:
                return rules[name]
        for key, pattern in patterns.items():
            if any(_matches(pattern, name) for name in _forms(path)):
                return rules[key]
        path = path.rpartition("/")[0]
    return None


def _text(key: str | re.Pattern[str]) -> str:
    return f"{REGEX}{key.pattern}" if isinstance(key, re.Pattern) else key


def _listed(names: list[str], most: int = 12) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more
