"""Saves an assignment to `partition_file`, and loads it for `load_partition`.

The file is readable JSON: per unit its partition, the sources of its inputs, and its variables. Inputs and variables
must match the model on loading; costs may have changed. The file is written under a temporary name, flushed to the disk
and renamed, so that a reader finds either the old assignment or the new one.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from smdistributed.modelparallel.backend.exceptions import SMPPartitionError
from smdistributed.modelparallel.tensorflow.partitioning.units import UnitGraph

KIND = "tidemill-smp partition"
VERSION = 1


def save_partition(
    path: str | os.PathLike[str], graph: UnitGraph, assignment: Sequence[int], *, partitions: int
) -> None:
    """Write an assignment. Only one rank calls it.

    Args:
        path: The file; missing directories are created.
        assignment: Partition per unit, in the order of `graph.units`.
    """
    shapes = [shape for _, shape in graph.structure()]
    record = {
        "kind": KIND,
        "version": VERSION,
        "partitions": partitions,
        "graph": graph.structure_hash,
        "units": [{"partition": part, **shape} for part, shape in zip(assignment, shapes, strict=True)],
    }
    _write(Path(path), json.dumps(record, indent=1) + "\n")


def load_partition(path: str | os.PathLike[str], graph: UnitGraph, *, partitions: int) -> tuple[int, ...]:
    """Read an assignment.

    Args:
        path: A file that `save_partition` wrote.
        graph: The units of the current model.
        partitions: The current number of partitions.

    Returns:
        Partition per unit, in the order of `graph.units`.

    Raises:
        SMPPartitionError: If the file cannot be read, or belongs to another model or number of partitions; the message
            names the first unit that differs.
    """
    record = _read(Path(path))
    if record["partitions"] != partitions:
        raise SMPPartitionError(
            f"partition file {str(path)!r} was made for {record['partitions']} partitions, but there are {partitions}: "
            f"set partitions to {record['partitions']}, or delete the file to decide anew"
        )
    units = record["units"]
    if record["graph"] != graph.structure_hash:
        raise SMPPartitionError(
            f"partition file {str(path)!r} does not fit this model: {_difference(units, graph)}. Delete the file to "
            "decide anew"
        )
    try:
        # The hash covers the model and not the assignment, which users may edit: so check the partitions.
        assigned = {unit["name"]: unit["partition"] for unit in units}
        assignment = tuple(assigned[unit.name] for unit in graph.units)
    except (KeyError, TypeError) as error:
        raise SMPPartitionError(f"partition file {str(path)!r} is damaged: {error!r} in its units") from error
    for unit, part in zip(graph.units, assignment, strict=True):
        if isinstance(part, bool) or not isinstance(part, int) or not 0 <= part < partitions:
            raise SMPPartitionError(
                f"partition file {str(path)!r}: unit {unit.name!r} has partition {part!r}, expected 0 to "
                f"{partitions - 1}"
            )
    return assignment


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SMPPartitionError(
            f"partition file {str(path)!r} does not exist: write it first, by a run with load_partition=False"
        ) from error
    except (OSError, ValueError) as error:
        raise SMPPartitionError(f"partition file {str(path)!r} cannot be read: {error}") from error
    if not isinstance(record, dict) or record.get("kind") != KIND:
        raise SMPPartitionError(f"{str(path)!r} is not a partition file")
    if record.get("version") != VERSION:
        raise SMPPartitionError(
            f"partition file {str(path)!r} has version {record.get('version')!r}, but this library reads {VERSION}: "
            "delete it to decide anew"
        )
    if missing := [key for key in ("partitions", "graph", "units") if key not in record]:
        raise SMPPartitionError(f"partition file {str(path)!r} is damaged: {', '.join(missing)} missing")
    if not isinstance(record["units"], list) or not all(isinstance(unit, dict) for unit in record["units"]):
        raise SMPPartitionError(f"partition file {str(path)!r} is damaged: units is not a list of objects")
    return record


def _difference(units: list[dict[str, Any]], graph: UnitGraph) -> str:
    """Describe the first difference between the file and the model."""
    for number, (saved, (unit, shape)) in enumerate(zip(units, graph.structure(), strict=False)):
        if saved.get("name") != unit.name:
            return f"unit {number} is {saved.get('name')!r} in the file and {unit.name!r} in the model"
        for what in ("inputs", "variables"):
            if saved.get(what) != shape[what]:
                return f"unit {unit.name!r} has {what} {saved.get(what)} in the file and {shape[what]} in the model"
    here = len(graph.units)
    if len(units) > here:
        return f"unit {units[here].get('name')!r} of the file is not in the model"
    if len(units) < here:
        return f"unit {graph.units[len(units)].name!r} of the model is not in the file"
    return "its units are the model's, but its checksum is not: the file was changed by hand"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
