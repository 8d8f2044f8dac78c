"""A tidemill service of its own, for tests of what runs inside jobs and endpoints, whose S3 they use."""

import json
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from polling import poll

ROOT = Path(__file__).resolve().parents[1]
REGION = "us-west-2"


@contextmanager
def running_service(directory: Path) -> Generator[dict[str, str]]:
    """Run a service, and provide the environment variables that direct boto3 to it.

    Args:
        directory: A directory for its state and its log.
    """
    state, log = directory / "state", directory / "log"
    command = [ROOT / ".venv/bin/tidemill", "up", "--foreground", "--port", "0", "--state-dir", state]
    with log.open("w") as opened:
        process = subprocess.Popen(command, stdout=opened, stderr=opened)

    def has_started() -> bool:
        assert process.poll() is None, log.read_text()
        return (state / "service.json").is_file()

    try:
        poll(has_started, log.read_text)
        keys = json.loads((state / "keys.json").read_text())
        yield {
            "AWS_ENDPOINT_URL": json.loads((state / "service.json").read_text())["url"],
            "AWS_ACCESS_KEY_ID": keys["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": keys["secret_access_key"],
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
        }
    finally:
        process.terminate()
        process.wait()
