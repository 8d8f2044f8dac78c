"""Slurm's own commands, as a user of the cluster runs them."""

import subprocess


def slurm(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def idle_nodes() -> list[str]:
    """Return the nodes on which nothing runs."""
    return sorted(set(slurm("sinfo", "--noheader", "--Node", "--states=idle", "--format=%N").split()))


def queue(states: str = "all") -> list[tuple[str, str, str]]:
    """Return the number, the state and the nodes of each job."""
    lines = slurm("squeue", "--noheader", f"--states={states}", "--format=%i|%T|%N").splitlines()
    return [tuple(line.split("|")) for line in lines]  # type: ignore[misc]
