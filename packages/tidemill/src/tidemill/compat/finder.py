"""The meta path finder, which provides modules of AWS's SDK that are not installed.

It comes right after the path finder, so installed modules take precedence: all of AWS's SDK v2, and everything in v3
except ``sagemaker.tensorflow``, which v3 lacks. There is no file under the import name ``sagemaker``, because it would
break AWS's own package.
"""

import dis
import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType
from typing import Any

from tidemill import __version__
from tidemill.compat.escapes import EscapeFinder
from tidemill.compat.names import INSTEAD, MODULES


class CompatFinder(MetaPathFinder):
    """Finds the modules named in `tidemill.compat.names`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a provided module, or None.

        Raises:
            ModuleNotFoundError: The module is not installed, and there is something to use instead.
        """
        del path, target
        if fullname in INSTEAD:
            raise ModuleNotFoundError(f"No module named {fullname!r}: {INSTEAD[fullname]}", name=fullname)
        if fullname not in MODULES:
            return None
        is_package = any(name.startswith(f"{fullname}.") for name in MODULES)
        return ModuleSpec(fullname, _CompatLoader(), origin="tidemill.compat", is_package=is_package)


class _CompatLoader(Loader):
    """Creates a module whose names are looked up on first use."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        del spec
        return None  # an ordinary module

    def exec_module(self, module: ModuleType) -> None:
        names = MODULES[module.__name__]
        module.__doc__ = "Answered by tidemill: AWS's SDK is not installed here, or no longer has this module."
        members: dict[str, Any] = {"__all__": sorted(names), "__version__": __version__}
        members["__getattr__"] = _lookup(module, names)
        members["__dir__"] = lambda: [*module.__dict__, *names]
        module.__dict__.update(members)


def install() -> None:
    """Install the finders; a second call has no effect."""
    if any(isinstance(finder, CompatFinder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, EscapeFinder())
    place = sys.meta_path.index(PathFinder) + 1 if PathFinder in sys.meta_path else len(sys.meta_path)
    sys.meta_path.insert(place, CompatFinder())


def _lookup(module: ModuleType, names: Any) -> Any:
    def look_up(name: str) -> Any:
        if name in names:
            home, _, attribute = names[name].partition(":")
            value = getattr(importlib.import_module(home), attribute)
            setattr(module, name, value)
            return value
        submodule = f"{module.__name__}.{name}"
        if submodule in INSTEAD:
            raise ImportError(f"cannot import name {name!r} from {module.__name__!r}: {INSTEAD[submodule]}")
        if submodule in MODULES:
            # `import sagemaker` and then `sagemaker.tensorflow.TensorFlow`: AWS's package imports its modules itself.
            return importlib.import_module(submodule)
        kind = ImportError if _is_from_import(sys._getframe(1)) else AttributeError
        raise kind(f"module {module.__name__!r} has no attribute {name!r}; tidemill answers {', '.join(sorted(names))}")

    return look_up


def _is_from_import(frame: FrameType) -> bool:
    """Return whether a frame looks the name up for ``from MODULE import NAME``.

    Python replaces the text of an AttributeError there, but not that of an ImportError.
    """
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_FROM"
