"""Slurm's commands, as the user of the service. Each has a time limit, and errors say whether to try again."""

import os
import re
import shutil
import subprocess

from tidemill.errors import ConfigurationError, TidemillError

NEEDED = ("sbatch", "sbcast", "scancel", "scontrol", "sinfo", "squeue")
_ANSWER_S = 30.0
_TRANSIENT = re.compile(
    r"unable to contact|connection (refused|timed out|reset)|connect failure|timed out|communication|no route to host"
    r"|zero bytes were|try(ing)? again|temporarily|unexpected (message|rpc)|slurm controller|network is unreachable"
    r"|munge|authentication error|protocol|backup|violates accounting/qos policy",
    re.IGNORECASE,
)
"""What Slurm says if the same request may succeed later.

Includes limits on how many jobs may be submitted: other jobs end.
"""
_IMPOSSIBLE = re.compile(
    r"node configuration is not available|node count|more processors requested|invalid (feature|generic)|gres"
    r"|invalid (qos|account|partition)|time limit",
    re.IGNORECASE,
)


class SlurmAway(TidemillError):
    """Slurm did not answer, or cannot do it now; the same request may succeed later."""


class SlurmRefused(TidemillError):
    """Slurm refused a request.

    Attributes:
        impossible: Whether the cluster has no such nodes, partition, account and so on.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.impossible = bool(_IMPOSSIBLE.search(message))


def check_commands() -> None:
    """Check that Slurm's commands are installed.

    Raises:
        ConfigurationError: A command is missing.
    """
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        raise ConfigurationError(
            f"executor = 'slurm' needs {', '.join(missing)}, which the service cannot find. Start the service"
            " on a machine from which you submit jobs, or install Slurm's commands (`apt install slurm-client`)"
        )


def run(*command: str, script: str = "", timeout_s: float = _ANSWER_S) -> str:
    """Run one of Slurm's commands and return its output.

    Args:
        command: The command with its arguments.
        script: Its standard input. Default: empty.
        timeout_s: Time limit in seconds. Default: 30.

    Raises:
        SlurmAway: Slurm did not answer.
        SlurmRefused: Slurm refused the request.
    """
    variables = {**os.environ, "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            command, input=script, env=variables, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise SlurmAway(f"{command[0]} has not answered for {timeout_s:g} seconds") from None
    except OSError as error:
        raise SlurmAway(f"{command[0]} cannot be run: {error}") from error
    if done.returncode:
        message = said(done.stderr) or f"{command[0]} exited with status {done.returncode}"
        raise SlurmAway(message) if _TRANSIENT.search(message) else SlurmRefused(message)
    return done.stdout


def said(stderr: str) -> str:
    """Return the messages of a command in one line, without its name in front of each.

    Args:
        stderr: What the command has written.
    """
    lines = [re.sub(r"^(s[a-z]+: )?(error: )?", "", line.strip()) for line in stderr.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line))[:500]
