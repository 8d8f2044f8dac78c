"""Model parallelism for TensorFlow: `import smdistributed.modelparallel.tensorflow as smp`.

Its names are those of `api`, which is imported with the first that is asked for: importing TensorFlow takes seconds,
and the launcher (`python -m smdistributed.modelparallel.tensorflow.run`) does without.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smdistributed.modelparallel.tensorflow.api import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        # Python asks for a module's own attributes too, and for those of modules that are being imported.
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        api = importlib.import_module(f"{__name__}.api")
        if not hasattr(api, name):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(api, name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *importlib.import_module(f"{__name__}.api").__all__})
