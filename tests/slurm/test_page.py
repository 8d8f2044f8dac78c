"""The commands of the page on clusters, run as they are printed, on a cluster with the addresses of the page."""

import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest
from slurm_tools import idle_nodes

from cluster_scripts import DIGITS
from control import ask
from polling import poll

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/run-jobs-on-a-cluster.md"
ENVIRONMENT = {**os.environ, "PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}"}


def blocks(begin: str, end: str) -> list[tuple[str, str]]:
    """Return the language and the text of each block of code of a part of the page."""
    part = PAGE.read_text().partition(begin)[2].partition(end)[0]
    return re.findall(r"^```(\w*)\n(.*?)^```", part, re.DOTALL | re.MULTILINE)


def run(command: str) -> str:
    done = subprocess.run(
        ["sh", "-e", "-c", command], cwd=Path.home(), env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_page_leads_from_an_account_to_a_job_on_two_nodes() -> None:
    if "SLURM_TEST_CONTROL" not in os.environ:
        pytest.exit("these tests need a Slurm cluster of their own: run them by `make matrix-slurm`", returncode=2)
    poll(lambda: len(idle_nodes()) == 4, idle_nodes)
    home = Path.home()
    install, certificate, environment, settings, start = blocks("## With Slurm\n", "### What an allocation")
    (client,) = (text for language, text in blocks("## With Ray\n", "## Which machine") if language == "python")
    assert install[1] == "pip install tidemill\n", "here, the programs of the checkout are installed on all machines"
    run(certificate[1])
    for node in ("node1", "node2", "node3", "node4"):
        ask("copy", str(home / "service.pem"), node)
    run(environment[1])
    assert settings[0] == "toml"
    (home / ".config/tidemill").mkdir(parents=True)
    (home / ".config/tidemill/config.toml").write_text(settings[1])
    (home / "client.py").write_text(client)
    (home / "train.py").write_text(textwrap.dedent(DIGITS))
    try:
        output = run(start[1])
    finally:
        subprocess.run(["tidemill", "down"], env=ENVIRONMENT, check=False)
    assert output.count('"replicas": 2') == 2, output
