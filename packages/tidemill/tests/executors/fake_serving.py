"""Stands in for tidemill-serving: does what the script in the model directory says."""

import sys
from pathlib import Path

model = Path(sys.argv[sys.argv.index("--model-dir") + 1])
exec((model / "serve.py").read_text())
