"""What an allocation of Slurm asks for, by instance type (setting ``slurm_instance_types``)."""

from dataclasses import dataclass
from typing import ClassVar

OWN_OPTIONS = frozenset(
    [
        "array",
        "batch",
        "chdir",
        "clusters",
        "comment",
        "dependency",
        "error",
        "export",
        "export-file",
        "get-user-env",
        "help",
        "hold",
        "input",
        "job-name",
        "no-kill",
        "no-requeue",
        "nodes",
        "ntasks",
        "ntasks-per-node",
        "output",
        "parsable",
        "quiet",
        "requeue",
        "test-only",
        "usage",
        "version",
        "wait",
        "wrap",
    ]
)
"""Long options of sbatch that tidemill itself sets, or that would change what it relies on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmOptions:
    """Options of sbatch for the allocation of a job. Unset options have the defaults of the cluster.

    Attributes:
        partition: Partition, or several separated by commas.
        account: Account that is charged.
        qos: Quality of service.
        time_limit: Time limit in Slurm's format, e.g. ``2:00:00`` or ``1-12``.
        constraint: Features that the nodes must have.
        gres: Generic resources of each node, e.g. ``gpu:2``.
        cpus: CPUs of each node.
        memory: Memory of each node in Slurm's format, e.g. ``32G``.
        exclusive: Whether no other job may use the nodes at the same time.
        options: Further options of sbatch, each as ``--name=value`` or ``--name``.

    Raises:
        ValueError: A value cannot be passed to sbatch, or an option in ``options`` is set by tidemill itself.
    """

    partition: str = ""
    account: str = ""
    qos: str = ""
    time_limit: str = ""
    constraint: str = ""
    gres: str = ""
    cpus: int | None = None
    memory: str = ""
    exclusive: bool = False
    options: tuple[str, ...] = ()

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # a misspelt member of the settings is an error

    def __post_init__(self) -> None:
        if self.cpus is not None and self.cpus < 1:
            raise ValueError(f"cpus is {self.cpus}; expected 1 or more")
        for option in self.options:
            name = option.removeprefix("--").partition("=")[0]
            if not option.startswith("--") or not name:
                raise ValueError(f"{option!r} is no option of sbatch; expected --name=value or --name")
            # Like getopt, sbatch accepts the beginning of a name.
            taken = sorted(own for own in OWN_OPTIONS if own == name or (own.startswith(name) and len(name) > 1))
            if taken:
                raise ValueError(
                    f"{option!r} cannot be set, because tidemill sets --{taken[0]} or relies on its default"
                )
        if any("\0" in text or "\n" in text for text in self.arguments()):
            raise ValueError("an option of sbatch contains a line break or a NUL")

    def arguments(self) -> tuple[str, ...]:
        """Return the arguments of sbatch."""
        values = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "time": self.time_limit,
            "constraint": self.constraint,
            "gres": self.gres,
            "cpus-per-task": str(self.cpus or ""),
            "mem": self.memory,
        }
        named = (f"--{name}={value}" for name, value in values.items() if value)
        return (*named, *(("--exclusive",) if self.exclusive else ()), *self.options)
