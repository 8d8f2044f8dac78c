"""`tidemill status`: show whether the service runs, and what runs in it."""

import json as jsonlib
import urllib.error
import urllib.request
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from tidemill.cli.options import JsonOption, StateDirOption, load_settings
from tidemill.cli.text import age, print_json

if TYPE_CHECKING:
    from tidemill.cli.service import LocalService

__all__ = ["app"]

app = typer.Typer()

_HEALTH_TIMEOUT_S = 5.0


@app.command()
def status(json: JsonOption = False, state_dir: StateDirOption = None) -> None:
    """Show whether the service runs, its address, and what runs in it. Exit code 1 if it does not run."""
    from tidemill.cli.service import LocalService
    from tidemill.server.discovery import connect
    from tidemill.server.state import StateDirectory

    state = StateDirectory(load_settings(state_dir=state_dir).state_dir.absolute())
    connection = connect(state)
    if connection is None:
        answer: dict[str, Any] = {"running": False, "state_dir": str(state.root)}
    else:
        answer = _describe(LocalService(state, connection))
    if json:
        print_json(answer)
    else:
        _show(answer)
    if not answer["running"]:
        raise typer.Exit(1)


def _describe(service: "LocalService") -> dict[str, Any]:
    record = service.connection.service
    health = _health(record.url)
    answer: dict[str, Any] = {
        "running": True,
        "url": record.url,
        **({"public_url": record.public_url} if record.public_url else {}),
        "pid": record.pid,
        "region": record.region,
        "state_dir": str(service.state.root),
        "started": datetime.fromtimestamp(record.started_ms / 1000, UTC),
        "isolation": health.get("isolation"),
        "healthy": bool(health),
    }
    if health:
        answer["jobs"] = service.live_job_names()
        answer["compiler"] = service.compiler_summaries()
        answer["endpoints"] = [endpoint["EndpointName"] for endpoint in service.endpoints()]
    return answer


def _health(url: str) -> dict[str, Any]:
    """Return the answer of `/healthz`; empty if the service does not answer."""
    # No proxy, because 127.0.0.1 would mean the proxy's own machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/healthz", timeout=_HEALTH_TIMEOUT_S) as reply:
            content = jsonlib.loads(reply.read() or b"{}")
    except urllib.error.HTTPError as error:
        error.close()
        return {"status": f"answers {error.code}"}
    except (urllib.error.URLError, OSError, ValueError):
        return {}
    return {"status": "ok"} | content if isinstance(content, dict) else {}


def _show(answer: dict[str, Any]) -> None:
    if not answer["running"]:
        typer.echo(f"no service runs on {answer['state_dir']}; start one with `tidemill up`")
        return
    typer.echo(f"service    {answer['url']} (pid {answer['pid']}, up {age(answer['started'])})")
    if "public_url" in answer:
        typer.echo(f"public     {answer['public_url']}")
    typer.echo(f"state      {answer['state_dir']}")
    typer.echo(f"region     {answer['region']}")
    if not answer["healthy"]:
        typer.echo("health     does not answer; see service.log in the state directory")
        return
    typer.echo(f"isolation  {answer['isolation'] or 'not said'}")
    typer.echo(f"jobs       {', '.join(answer['jobs']) or 'none running'}")
    for name, summary in answer["compiler"].items():
        typer.echo(f"compiler   {name}: {summary}")
    typer.echo(f"endpoints  {', '.join(answer['endpoints']) or 'none'}")
