"""Calls of AWS's installed SDK that no endpoint variable redirects, led to the service.

Nothing of AWS's package is imported here: its modules are changed when a client imports them.

- *Local mode* (version 2): ``instance_type="local"`` starts containers by Docker Compose. The service is on this
  machine anyway, so sessions for local mode become ordinary sessions, which send requests.
- *STS* (versions 1 to 3): ``get_execution_role`` and ``default_bucket`` name AWS's own host.

A version whose modules have other names in them is left as it is.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_REPLACED = ("_initialize", "logs_for_job", "logs_for_processing_job")
"""Methods of local sessions that prepare containers, or print no log because the container prints it."""


class EscapeFinder(MetaPathFinder):
    """Finds the modules of AWS's package that have such calls, and changes them after they were loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of an installed module that is changed; None for every other module."""
        change = _CHANGES.get(fullname)
        if change is None:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _ChangingLoader(spec.loader, change)
        return spec


class _ChangingLoader(Loader):
    """Loads a module as AWS's package has it, and then changes it."""

    def __init__(self, loader: Loader, change: Callable[[Any], None]) -> None:
        self._loader = loader
        self._change = change

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._change(module)


def _send_local_jobs(module: Any) -> None:
    """Make local sessions ordinary ones."""
    if not hasattr(module, "LocalSession"):
        return
    for name in _REPLACED:
        if name in vars(module.LocalSession):
            delattr(module.LocalSession, name)  # that of the ordinary session is found then
    module.file_input = _UploadedInput


def _ask_own_sts(module: Any) -> None:
    """Let the module ask the service that the environment names, if it names one."""
    of_aws = getattr(module, "sts_regional_endpoint", None)
    if of_aws is None:
        return

    def sts_endpoint(region: str) -> str:
        return os.environ.get("AWS_ENDPOINT_URL_STS") or os.environ.get("AWS_ENDPOINT_URL") or of_aws(region)

    module.sts_regional_endpoint = sts_endpoint


_CHANGES: Mapping[str, Callable[[Any], None]] = {
    "sagemaker.core.helper.session_helper": _ask_own_sts,
    "sagemaker.local.local_session": _send_local_jobs,
    "sagemaker.session": _ask_own_sts,
}


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
