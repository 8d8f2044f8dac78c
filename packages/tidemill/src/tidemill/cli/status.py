"""`tidemill status`: show whether the service runs, and what runs in it."""

import json as jsonlib
import os
import ssl
import urllib.error
import urllib.request
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from tidemill.cli.options import EndpointOption, JsonOption, StateDirOption
from tidemill.cli.text import age, print_json
from tidemill.errors import printable

if TYPE_CHECKING:
    from tidemill.cli.service import NamedService

app = typer.Typer(add_completion=False)

_HEALTH_TIMEOUT_S = 5.0


@app.command()
def status(json: JsonOption = False, endpoint_url: EndpointOption = None, state_dir: StateDirOption = None) -> None:
    """Show the service that commands and the SDK use, and what runs in it. Exit code 1 if it does not run."""
    from tidemill.cli.service import ServiceChoice, find_service

    choice = ServiceChoice.of(state_dir=state_dir, endpoint_url=endpoint_url)
    service = find_service(choice)
    if service is None:
        answer: dict[str, Any] = {"running": False, "state_dir": str(choice.state.root), "selected": choice.reason}
    else:
        answer = _describe(service)
    if json:
        print_json(answer)
    else:
        _show(answer)
    if not answer["running"]:
        raise typer.Exit(1)


def _describe(service: "NamedService") -> dict[str, Any]:
    health = health_of(service.url)
    answer: dict[str, Any] = {
        "running": bool(health) or service.own is not None,
        "url": service.url,
        "selected": service.choice.reason,
        **_own_record(service),
        "region": service.session.region_name,
        "isolation": health.get("isolation"),
        "warm": health.get("warm") == "on",
        "healthy": bool(health),
    }
    if health:
        answer["jobs"] = service.live_job_names()
        answer["compiler"] = service.compiler_summaries()
        answer["endpoints"] = [endpoint["EndpointName"] for endpoint in service.endpoints()]
        answer |= _queue(service)
    return answer


def _queue(service: "NamedService") -> dict[str, Any]:
    """Return how many instances can run and how many jobs wait; nothing if the caller may not know it."""
    from botocore.exceptions import ClientError

    try:
        machine = service.tidemill.describe_machine()
    except ClientError:  # a user without the permission, or a service of an earlier version
        return {}
    capacity = machine["Capacity"]
    return {
        "instances": {"all": capacity["Instances"], "free": capacity["FreeInstances"]},
        "waiting": len(machine["Waiting"]),
    }


def _own_record(service: "NamedService") -> dict[str, Any]:
    """Return what only the files of a service on this machine tell."""
    if service.own is None:
        return {}
    record = service.own.connection.service
    return {
        **({"public_url": record.public_url} if record.public_url else {}),
        "pid": record.pid,
        "state_dir": str(service.own.state.root),
        "started": datetime.fromtimestamp(record.started_ms / 1000, UTC),
    }


def health_of(url: str) -> dict[str, Any]:
    """Return the answer of `/healthz`; empty if the service does not answer.

    Args:
        url: URL of the service.
    """
    # No proxy, because 127.0.0.1 would mean the proxy's own machine. The certificate authority is that of AWS clients.
    trust = ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE") or None)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
    try:
        with opener.open(f"{url.rstrip('/')}/healthz", timeout=_HEALTH_TIMEOUT_S) as reply:
            content = jsonlib.loads(reply.read() or b"{}")
    except urllib.error.HTTPError as error:
        error.close()
        return {"status": f"answers {error.code}"}
    except (urllib.error.URLError, OSError, ValueError):
        return {}
    return {"status": "ok"} | content if isinstance(content, dict) else {}


def _show(answer: dict[str, Any]) -> None:
    if "url" not in answer:
        typer.echo(f"no service runs on {answer['state_dir']} ({answer['selected']}); start one with `tidemill up`")
        return
    since = f" (pid {answer['pid']}, up {age(answer['started'])})" if "pid" in answer else ""
    typer.echo(f"service    {answer['url']}{since}")
    typer.echo(f"selected   {answer['selected']}")
    for label, name in (("public", "public_url"), ("state", "state_dir"), ("region", "region")):
        if name in answer:
            typer.echo(f"{label:<10} {answer[name]}")
    if not answer["healthy"]:
        log = "; see service.log in the state directory" if "state_dir" in answer else ""
        typer.echo(f"health     does not answer{log}")
        return
    typer.echo(f"page       {answer['url'].rstrip('/')}/_tidemill/ (`tidemill open`)")
    typer.echo(f"isolation  {answer['isolation'] or 'not said'}")
    typer.echo(f"warm start {'on' if answer['warm'] else 'off (`tidemill up --warm`)'}")
    typer.echo(f"jobs       {', '.join(answer['jobs']) or 'none running'}")
    for name, summary in answer["compiler"].items():
        typer.echo(f"compiler   {name}: {printable(summary)}")
    typer.echo(f"endpoints  {', '.join(answer['endpoints']) or 'none'}")
    if "instances" in answer:
        waiting = f"; {answer['waiting']} jobs wait" if answer["waiting"] else ""
        typer.echo(f"instances  {answer['instances']['free']} of {answer['instances']['all']} free{waiting}")
