"""Replaces tidemill-serving in tests: runs the script in the model directory."""

import sys
from pathlib import Path

model = Path(sys.argv[sys.argv.index("--model-dir") + 1])
exec((model / "serve.py").read_text())
