"""No isolation: directories are set by variables, and the whole machine is visible."""

from collections.abc import Mapping, Sequence

from tidemill.core.instances import Isolation
from tidemill.sandbox.base import Launch, View


class PlainSandbox:
    """Runs the command directly, with ``SAGEMAKER_BASE_DIR`` instead of ``/opt/ml``."""

    name = "plain"
    isolation = Isolation.PLAIN

    def base_dir(self, view: View) -> str:
        return str(view.ml)

    def variables(self, view: View) -> dict[str, str]:
        return {"HOME": str(view.home), "TMPDIR": str(view.tmp), "SAGEMAKER_BASE_DIR": str(view.ml)}

    def wrap(self, argv: Sequence[str], *, view: View, variables: Mapping[str, str]) -> Launch:
        return Launch(argv=tuple(argv), variables=dict(variables), directory=str(view.home))
