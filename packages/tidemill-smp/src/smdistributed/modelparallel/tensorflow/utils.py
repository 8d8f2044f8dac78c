"""Checkpoint files from rank to rank. The module has the name that scripts import.

utils.send_checkpoint_files("/opt/ml/checkpoints", 0)       # on MP rank 1: sends .../mp_rank_1/
utils.receive_checkpoint_files("/opt/ml/checkpoints", 1)    # on MP rank 0: makes .../mp_rank_1/
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError
from smdistributed.modelparallel.tensorflow import session
from smdistributed.modelparallel.tensorflow.world.communication import recv_from, send
from smdistributed.modelparallel.tensorflow.world.groups import RankType

__all__ = ["receive_checkpoint_files", "send_checkpoint_files"]

_CHUNK_BYTES = 16 << 20


def send_checkpoint_files(root_dir: str | Path, dst_rank: int) -> None:
    """Send the files of this rank's checkpoints, while `dst_rank` calls `receive_checkpoint_files`.

    Args:
        root_dir: The directory that has `mp_rank_<own>/`.
        dst_rank: The receiver's rank in the replica (its `mp_rank`).

    Raises:
        SMPCheckpointError: If there is no such directory; raised on the receiver too.
    """
    directory = Path(root_dir) / f"mp_rank_{session.current().placement.mp_rank}"
    files = sorted(path for path in directory.rglob("*") if path.is_file()) if directory.is_dir() else None
    names = None if files is None else [path.relative_to(directory).as_posix() for path in files]
    send((directory.name, names), dst_rank, RankType.MP_RANK)
    if files is None:
        raise _nothing_there(str(directory))
    for path in files:
        for chunk in _chunks(path):
            send(chunk, dst_rank, RankType.MP_RANK)
        send(b"", dst_rank, RankType.MP_RANK)


def receive_checkpoint_files(dst_root_dir: str | Path, src_rank: int) -> None:
    """Receive what `send_checkpoint_files` sends, into `mp_rank_<src_rank>/` below `dst_root_dir`.

    Args:
        dst_root_dir: Where to make the directory; files of the same names are replaced.
        src_rank: The sender's rank in the replica (its `mp_rank`).

    Raises:
        SMPCheckpointError: If the sender has none.
    """
    name, files = recv_from(src_rank, RankType.MP_RANK)
    if files is None:
        raise _nothing_there(f"{name} on the rank that sends")
    for file in files:
        path = Path(dst_root_dir) / name / PurePosixPath(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.incoming")
        with fresh.open("wb") as out:
            while chunk := recv_from(src_rank, RankType.MP_RANK):
                out.write(chunk)
        fresh.replace(path)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _nothing_there(where: str) -> SMPCheckpointError:
    return SMPCheckpointError(f"there is no directory {where}: save a checkpoint below that root before sending it")
