"""The modules beside this file, which also run as programs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
