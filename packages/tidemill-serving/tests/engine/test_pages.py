"""The memory in use after TensorFlow's library is loaded."""

import subprocess
import sys
from pathlib import Path

import pytest

from tidemill_serving.engine import pages

SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from tidemill_serving.engine import open_engine

def resident_mb(kind):
    (line,) = [line for line in open("/proc/self/status") if line.startswith(kind + ":")]
    return int(line.split()[1]) // 1024

engine = open_engine("c_api")
loaded_mb = resident_mb("RssFile")
model = engine.load(Path(sys.argv[1]))
(y,) = model.run(model.signatures["serving_default"], [np.array([2], np.float32)], pooled=False)
engine.release_memory()
print(y.tolist(), loaded_mb, resident_mb("RssFile"), resident_mb("VmRSS"))
"""
SMAPS = """\
7f0000000000-7f0000001000 r--p 00000000 fe:00 42                         /wheel/lib one.so
Rss:                   4 kB
Anonymous:             0 kB
Swap:                  0 kB
7f0000001000-7f0000003000 r-xp 00001000 fe:00 42                         /wheel/lib one.so
Rss:                   8 kB
Anonymous:             4 kB
Swap:                  0 kB
7f0000003000-7f0000004000 r--p 00003000 fe:00 42                         /wheel/lib one.so
Rss:                   0 kB
Anonymous:             0 kB
Swap:                  4 kB
7f0000004000-7f0000005000 rw-p 00004000 fe:00 42                         /wheel/lib one.so
Anonymous:             0 kB
Swap:                  0 kB
7f0000005000-7f0000006000 r-xp 00000000 fe:00 43                         /wheel/other.so
Anonymous:             0 kB
Swap:                  0 kB
7f0000006000-7f0000007000 rw-p 00000000 00:00 0
Anonymous:             4 kB
7f0000007000-7f0000009000 r-xp 00005000 fe:00 42                         /wheel/lib one.so
Anonymous:             0 kB
Swap:                  0 kB
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pages are only released on Linux")
def test_a_loaded_model_needs_less_memory_than_the_library_took_to_load(models: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(models / "half_plus/123")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer, loaded_mb, file_mb, all_mb = done.stdout.split()
    assert answer == "[3.0]"
    assert int(file_mb) < int(loaded_mb) / 2
    assert int(all_mb) < int(loaded_mb)  # the whole process uses less than the library's pages alone


def test_only_read_only_mappings_without_pages_of_the_process_are_released() -> None:
    assert pages._unchanged(SMAPS, "/wheel/lib one.so") == [
        (0x7F0000000000, 0x7F0000001000),
        (0x7F0000007000, 0x7F0000009000),
    ]


def test_without_an_account_of_the_mappings_nothing_is_released(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pages, "_SMAPS", tmp_path / "absent")
    assert pages.release_file_pages(tmp_path / "lib.so") == 0
