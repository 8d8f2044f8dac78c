"""Add the user's inference code to a model archive, as TensorFlow-Serving-based endpoints expect it."""

import io
import tarfile
import tempfile
from pathlib import Path

from tidemill.core.names import S3Uri
from tidemill.sdk.session import Session
from tidemill.sdk.sourcedir import SourceCode

_CODE = "code/"


def repack(session: Session, model_data: str, code: SourceCode, *, target: S3Uri) -> str:
    """Store a copy of a model archive with ``code`` as its ``code/`` directory.

    The other members of the archive are copied unchanged. The entry point becomes ``code/inference.py``, the name that
    the server looks for, and dependencies go to ``code/lib``.

    Args:
        session: Session for downloading and uploading.
        model_data: S3 URI of the archive.
        code: The code; it replaces the archive's own ``code/``.
        target: S3 URI of the copy.

    Returns:
        The S3 URI of the copy.
    """
    source = S3Uri.parse(model_data)
    with tempfile.TemporaryDirectory(prefix="tidemill-") as directory:
        old, new = Path(directory, "old.tar.gz"), Path(directory, "model.tar.gz")
        session.s3_client.download_file(source.bucket, source.key, str(old))
        with tarfile.open(old, "r:*") as model, tarfile.open(new, "w:gz") as packed:
            _copy(model, packed)
            with tarfile.open(fileobj=io.BytesIO(code.pack(dependencies_below="lib/")), mode="r:gz") as sources:
                _add_code(sources, packed, code.entry_point)
        session.ensure_bucket(target.bucket)
        session.s3_client.upload_file(str(new), target.bucket, target.key)
    return str(target)


def _copy(model: tarfile.TarFile, packed: tarfile.TarFile) -> None:
    for member in model:
        name = member.name.removeprefix("./")
        if not f"{name}/".startswith(_CODE):
            packed.addfile(member, model.extractfile(member) if member.isreg() else None)


def _add_code(sources: tarfile.TarFile, packed: tarfile.TarFile, entry_point: str) -> None:
    names = sources.getnames()
    if entry_point != "inference.py" and "inference.py" in names:
        raise ValueError(
            f"entry_point={entry_point!r} would become inference.py, but the source has another file of that name;"
            " rename one of them"
        )
    for member in sources:
        content = sources.extractfile(member) if member.isreg() else None
        member.name = _CODE + ("inference.py" if member.name == entry_point else member.name)
        packed.addfile(member, content)
