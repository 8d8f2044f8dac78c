"""Model parallelism for TensorFlow: `import smdistributed.modelparallel.tensorflow as smp`.

Every public name comes from `api`, which is imported on first access: importing TensorFlow takes seconds, and the
launcher (`python -m smdistributed.modelparallel.tensorflow.run`) does not need it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smdistributed.modelparallel.tensorflow.api import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        # The import system looks up dunder attributes, also while `api` is being imported: that must not recurse.
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        api = importlib.import_module(f"{__name__}.api")
        if not hasattr(api, name):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(api, name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *importlib.import_module(f"{__name__}.api").__all__})
