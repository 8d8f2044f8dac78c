"""Makes a forked interpreter look as if ``python -- train.py`` had just started it, and runs the script in it."""

from __future__ import annotations

import builtins
import ctypes
import gc
import importlib
import importlib.machinery
import os
import random
import signal
import site
import sys
import sysconfig
import time
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tidemill_runtime import startup
from tidemill_runtime.warm.eligibility import difference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OPENBLAS_SETTERS = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)


class Interpreter:
    """The state of a fresh interpreter, saved before anything was imported.

    Args:
        variables: Environment with which the zygote was started.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        inherited = [entry for entry in variables.get("PYTHONPATH", "").split(os.pathsep) if entry]
        self._path = [entry for entry in sys.path if entry not in inherited]
        self._set_by_imports: dict[str, str] = {}
        self.variables = dict(variables)

    def imported(self) -> None:
        """Save which variables the imports have set: a script with the same imports would set them as well."""
        before = {**self.variables, "OPENBLAS_NUM_THREADS": os.environ["OPENBLAS_NUM_THREADS"]}
        self._set_by_imports = {name: value for name, value in os.environ.items() if before.get(name) != value}

    def difference(self, variables: Mapping[str, str]) -> str:
        """Return the first variable that a fresh interpreter would have read differently; empty if there is none.

        Args:
            variables: The variables that the script would get.
        """
        return difference(self.variables, variables, also=self._set_by_imports)

    def become_fresh(self, *, argv: Sequence[str], variables: Mapping[str, str], directory: str) -> None:
        """Reset everything that a script can see of its process.

        Args:
            argv: The command line of a cold start: interpreter, ``--``, script, arguments.
            variables: The whole environment.
            directory: Working directory.
        """
        _reset_signals()
        os.environ.clear()
        os.environ.update({**variables, **self._set_by_imports})
        time.tzset()
        os.chdir(directory)
        sys.argv = list(argv[2:])
        if hasattr(sys, "orig_argv"):
            sys.orig_argv = list(argv)
        extra = [os.path.abspath(entry) for entry in variables.get("PYTHONPATH", "").split(os.pathsep) if entry]  # noqa: PTH100
        sys.path[:] = [str((Path(directory) / argv[2]).parent), *extra, *self._path]
        _move_to(argv[0])
        sys.path_importer_cache.clear()
        importlib.invalidate_caches()
        _reseed()
        _forget_the_process_before()
        _set_blas_threads(variables)
        if variables.get("TIDEMILL_REPORTS"):
            startup.install(variables["TIDEMILL_REPORTS"])

    def run(self, file: str) -> None:
        """Run a script as ``__main__``; return when it ends, or raise its exception.

        Raises:
            SystemExit: The script raised it, or raised an exception that has already been reported.
            KeyboardInterrupt: The script was interrupted; already reported.
        """
        path = str(Path.cwd() / file)
        main = _main_module(path)
        sys.modules["__main__"] = main
        try:
            with open(path, "rb") as source:  # noqa: PTH123
                code = compile(source.read(), path, "exec", dont_inherit=True)
        except Exception as error:  # noqa: BLE001 - any error of compiling a source is the script's exception
            _report(error, None)
        try:
            exec(code, main.__dict__)  # noqa: S102 - running the script is the purpose of this process
        except SystemExit:
            raise
        except BaseException as error:  # noqa: BLE001 - handed to the hook, as the interpreter does
            trace = error.__traceback__
            _report(error, trace.tb_next if trace else None)


def _move_to(python: str) -> None:
    """Belong to the virtual environment of another ``python``, which has no packages yet, above the own environment."""
    prefix = os.path.dirname(os.path.dirname(python))  # noqa: PTH120 - not resolved
    if prefix == sys.prefix:
        return
    own = sysconfig.get_path("purelib")
    below = sys.path.index(own)
    sys.executable, sys.prefix, sys.exec_prefix = python, prefix, prefix
    site.PREFIXES[:] = [prefix, prefix]
    importlib.reload(sysconfig)  # it has computed its paths from the prefix
    sys.path.insert(below, sysconfig.get_path("purelib"))


def _reset_signals() -> None:
    """Set a fresh interpreter's signal handlers: SIGPIPE and SIGXFSZ ignored, its own for SIGINT, else defaults."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        ignored = number in (signal.SIGPIPE, signal.SIGXFSZ)
        try:
            signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
        except OSError:
            continue  # reserved by the C library
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _reseed() -> None:
    """Draw new random state from the system, as a fresh interpreter does."""
    random.seed()
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def _forget_the_process_before() -> None:
    """Reset state that modules keep per process."""
    tempfile: Any = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile.tempdir = None
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.ORIGINAL_DIR = str(Path.cwd())
        process.current_process().authkey = os.urandom(32)
    gc.enable()


def _set_blas_threads(variables: Mapping[str, str]) -> None:
    """Set OpenBLAS to its default number of threads; the zygote keeps it at one to be able to fork."""
    wanted = variables.get("OPENBLAS_NUM_THREADS") or variables.get("OMP_NUM_THREADS") or ""
    num_threads = int(wanted) if wanted.isdigit() and int(wanted) else len(os.sched_getaffinity(0))
    if num_threads == 1:
        return
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:  # noqa: PTH123
        paths = {line.split(None, 5)[5].strip() for line in maps if "openblas" in line}
    for path in sorted(paths):
        library = ctypes.CDLL(path)
        setter = next((getattr(library, name) for name in OPENBLAS_SETTERS if hasattr(library, name)), None)
        if setter is not None:
            setter(num_threads)


def _main_module(path: str) -> types.ModuleType:
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __annotations__={},
        __builtins__=builtins,
        __cached__=None,
        __file__=path,
        __loader__=importlib.machinery.SourceFileLoader("__main__", path),
    )
    return main


def _report(error: BaseException, trace: types.TracebackType | None) -> NoReturn:
    """Report an uncaught exception as the interpreter does, without the frames below the script.

    Raises:
        SystemExit: Always, except after an interrupt.
        KeyboardInterrupt: After an interrupt; it makes the interpreter end by SIGINT.
    """
    error = error.with_traceback(trace)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    sys.excepthook(type(error), error, trace)
    if isinstance(error, KeyboardInterrupt):
        sys.excepthook = lambda kind, value, trace: None
        raise error
    raise SystemExit(1)
