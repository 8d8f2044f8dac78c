"""Local mode of AWS's SDK v2: ``instance_type="local"`` there starts containers by Docker Compose.

The service is on this machine anyway, so sessions for local mode become ordinary sessions, which send requests. Nothing
of AWS's package is imported here: its module is changed when a client imports it.
"""

from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

__all__ = ["LocalModeFinder"]

_MODULE = "sagemaker.local.local_session"
_REPLACED = ("_initialize", "logs_for_job", "logs_for_processing_job")
"""Methods that prepare containers, or print no log because the container prints it."""


class LocalModeFinder(MetaPathFinder):
    """Finds AWS's module with sessions for local mode, and changes it after it was loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the installed module; None for every other module."""
        if fullname != _MODULE:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _ChangingLoader(spec.loader)
        return spec


class _ChangingLoader(Loader):
    """Loads the module as AWS's package has it, and then changes its classes."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        session: Any = module.LocalSession
        for name in _REPLACED:
            if name in vars(session):
                delattr(session, name)  # that of the ordinary session is found then
        module.file_input = _UploadedInput  # type: ignore[attr-defined] - a module of AWS's package


class _UploadedInput:
    """A channel with local files, which the service reads from S3.

    Args:
        fileUri: ``file://PATH``.
        content_type: MIME type of the data.
    """

    def __init__(self, fileUri: str, content_type: str | None = None) -> None:  # noqa: N803  the published name
        from tidemill.sdk.console import Console
        from tidemill.sdk.inputs import TrainingInput
        from tidemill.sdk.session import Session
        from tidemill.sdk.upload import LocalData, upload

        session = Session()
        data = LocalData.read(fileUri.removeprefix("file://"))
        uri = upload(session.s3_client, data, bucket=session.default_bucket(), console=Console())
        self.config = TrainingInput(uri, content_type=content_type).config
