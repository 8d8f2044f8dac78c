"""The files in a tar archive that a client uploads to be extracted."""

import tarfile
from collections.abc import Iterator
from pathlib import Path

from tidemill.store.objects.errors import InvalidArgument
from tidemill.store.objects.extraction import ArchiveEntry
from tidemill.store.objects.index import check_key
from tidemill.wire.exchange import Context

_MEDIA_TYPE = "application/vnd.tidemill.files+tar"
MAX_ENTRIES = 200_000


def is_extracted(context: Context) -> bool:
    """Return whether the body of a PutObject is extracted.

    Only for keys without a policy, which is checked for one key per request, and never for a presigned request, which
    gives somebody else the right to one key.

    Args:
        context: The context of the request.
    """
    return context.headers.get("content-type") == _MEDIA_TYPE and not context.presigned


def entries_of(file: Path, *, prefix: str) -> list[ArchiveEntry]:
    """Return the regular files of an uncompressed tar archive as objects below a prefix; directories are left out.

    Args:
        prefix: Beginning of each key.

    Raises:
        AwsError: InvalidArgument: it is no such archive, or a member cannot become an object; nothing is stored then.
    """
    try:
        with tarfile.open(file, mode="r:") as archive:
            return list(_entries(archive, prefix))
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise InvalidArgument(
            f"the body is not an uncompressed tar archive ({error}); build it without compression, or send the files"
            " one by one"
        ) from error


def _entries(archive: tarfile.TarFile, prefix: str) -> Iterator[ArchiveEntry]:
    count = 0
    for member in archive:
        if member.isdir():
            continue
        count += 1
        if count > MAX_ENTRIES:
            raise InvalidArgument(f"the archive holds more than {MAX_ENTRIES} files; send several archives")
        if not member.isreg() or member.sparse is not None:
            raise InvalidArgument(f"{member.name!r} in the archive is no regular file; only those become objects")
        segments = member.name.split("/")
        if {"", ".", ".."} & set(segments):
            raise InvalidArgument(
                f"{member.name!r} in the archive is not a relative path without empty, . and .. segments"
            )
        key = f"{prefix}{member.name}"
        check_key(key)
        yield ArchiveEntry(key, member.offset_data, member.size)
