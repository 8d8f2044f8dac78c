"""Run by `make quickstart`: prepare the data in the jobs' environment, then run the client."""

import subprocess
import sys
from pathlib import Path

from tidemill.environments.builder import Environments
from tidemill.sdk.console import Console
from tidemill.settings import Settings

HERE = Path(__file__).resolve().parent


def main() -> int:
    environment = Environments(Settings().environments_dir).ensure("tf-2.21", log=Console().log)
    subprocess.run([environment.python, HERE / "prepare.py", HERE / "data"], check=True)
    return subprocess.run([sys.executable, "-m", "tidemill.cli", "run", HERE / "client.py"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
