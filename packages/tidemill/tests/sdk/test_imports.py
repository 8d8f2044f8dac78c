"""The cost of imports, and the public names."""

import json
import subprocess
import sys

import pytest

import tidemill.sdk

_PROBE = "import json, sys; import {module}; print(json.dumps(sorted(sys.modules)))"


@pytest.mark.parametrize("module", ["tidemill.sdk", "tidemill.compat"])
def test_importing_loads_no_library_beyond_the_standard_one(module: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", _PROBE.format(module=module)], capture_output=True, text=True, check=True
    )
    bare = subprocess.run(
        [sys.executable, "-c", "import json, sys; print(json.dumps(sorted(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(json.loads(found.stdout)) - set(json.loads(bare.stdout))
    foreign = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names) - {"tidemill"}
    assert foreign == set()
    assert {name for name in loaded if name.startswith("tidemill.")} <= {
        name for name in loaded if name.startswith(("tidemill.sdk", "tidemill.compat", "tidemill.core", "tidemill.err"))
    }


def test_public_names_are_sorted_and_exist() -> None:
    assert tidemill.sdk.__all__ == sorted(tidemill.sdk.__all__)
    assert all(hasattr(tidemill.sdk, name) for name in tidemill.sdk.__all__)
