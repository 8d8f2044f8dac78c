"""All imports but one are from the standard library."""

import ast
import subprocess
import sys
from pathlib import Path

import tidemill_runtime


def test_nothing_but_the_standard_library_is_imported_except_for_encryption():
    imported = set()
    for path in Path(tidemill_runtime.__file__).parent.rglob("*.py"):
        if path.parent.name == "native_build" and path.stem in ("loading", "wheel"):
            continue  # no job imports them
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))):
            if isinstance(node, ast.Import):
                imported.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add((node.module or "").partition(".")[0])
    assert imported - set(sys.stdlib_module_names) == {"tidemill_runtime", "cryptography"}
    job_starts = "import sys, tidemill_runtime.launchers.mpi; print('cryptography' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", job_starts], text=True) == "False\n"
