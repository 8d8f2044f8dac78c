"""How many files one has to open to follow a request through the service, counted while a service answers."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
MOST = {"PutObject": (24, 90), "CreateTrainingJob": (28, 88)}
"""By request: number of files, and number of moves between them, with some room for moves that depend on threads."""


def test_a_request_passes_through_few_files() -> None:
    program = ROOT / "benchmarks/files_entered.py"
    command = [sys.executable, str(program), "--list", "--requests", "2", "--settle", "0.4"]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = re.findall(r"(\w+): (\d+) files, (\d+) moves", printed)
    assert {name for name, *_ in found} == MOST.keys(), printed
    for name, files, moves in found:
        assert (int(files) <= MOST[name][0], int(moves) <= MOST[name][1]) == (True, True), printed
