"""Archives of the user's models and code: brought to the instance, and unpacked inside the sandbox."""

from tidemill.environments.builder import JobEnvironment
from tidemill.instance.spec import ObjectFile
from tidemill.sandbox import Launch
from tidemill.shim.failures import ClientFailure, InternalFailure
from tidemill.shim.local_copies import bring_object
from tidemill.shim.session import InstanceSession
from tidemill.shim.stopping import Stopped
from tidemill.shim.supervision import CommandEnd, CommandLimits, Running, supervise


def fetch(session: InstanceSession, source: ObjectFile, name: str) -> None:
    """Copy an object into the private directory of shim and runtime, as file ``name``.

    Args:
        name: Name of the new file.

    Raises:
        ClientFailure: The object cannot be fetched, or the disk is full.
        InternalFailure: The store's file is missing or damaged.
        Stopped: A stop was requested.
    """
    target = session.directory.private / name
    place, check = session.base_dir, session.stop.check
    bring_object(source, target, remotes=session.spec.remotes, place=place, check=check)


def extract(session: InstanceSession, environment: JobEnvironment, archive: ObjectFile, directory: str) -> None:
    """Unpack an archive into a directory of the instance, inside the sandbox.

    Args:
        environment: The environment whose Python unpacks.
        directory: Name of the directory below ``/opt/ml``, e.g. ``model``.

    Raises:
        ClientFailure: The archive cannot be unpacked.
        Stopped: A stop was requested.
    """
    name = f"{directory}.tar.gz"
    fetch(session, archive, name)
    base = session.base_dir
    launch = session.wrap_module(
        "tidemill_runtime",
        ["extract", f"{base}/.tidemill/{name}", f"{base}/{directory}"],
        environment=environment,
        view=session.view(environment),
        variables={},
    )
    run_once(session, launch, what=archive.uri)
    (session.directory.private / name).unlink(missing_ok=True)


def run_once(session: InstanceSession, launch: Launch, *, what: str) -> None:
    """Run a command on the user's files inside the sandbox, and wait for its end.

    Args:
        what: Name of the files, for messages.

    Raises:
        ClientFailure: The command failed; the message has its last line of output.
        InternalFailure: The sandbox could not be entered.
        Stopped: A stop was requested.
    """
    ended = run_to_end(session, launch)
    if ended.exit_code:
        last = ended.stderr_tail.strip().splitlines()[-1:] or [f"exit status {ended.exit_code}"]
        if last[0].startswith(("bwrap: ", "tidemill-sandbox: ")):
            raise InternalFailure(f"the sandbox could not be entered: {last[0]}")
        raise ClientFailure(f"{what}: {last[0]}")


def run_to_end(session: InstanceSession, launch: Launch) -> CommandEnd:
    """Run a command, and wait for its end. Return how it ended, whatever its exit status.

    Raises:
        Stopped: A stop was requested.
    """
    ended = supervise(
        launch,
        log=session.log,
        stop=session.stop,
        clock=session.clock,
        limits=CommandLimits(grace_s=0),
        ask=Running.kill,
    )
    if ended.stop:
        raise Stopped(ended.stop)
    return ended
