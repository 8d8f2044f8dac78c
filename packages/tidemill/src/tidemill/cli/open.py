"""`tidemill open`: open the page of the service in the browser, signed in."""

import html
import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from tidemill.cli.options import EndpointOption, JsonOption, StateDirOption
from tidemill.cli.text import print_result
from tidemill.core.files import make_directory, write_durably

app = typer.Typer(add_completion=False)


@app.command("open")
def open_page(
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open a browser, or print the address.")
    ] = True,
    read_only: Annotated[bool, typer.Option("--read-only", help="The session may look, and change nothing.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="End all sessions of your key, and open none.")] = False,
    json: JsonOption = False,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Open the page of the service in the browser, signed in as the owner of your key.

    The address works once, for five minutes.
    """
    from tidemill.cli.service import require_service
    from tidemill.core.service_choice import user_directory
    from tidemill.server.client import own_client

    service = require_service(state_dir=state_dir, endpoint_url=endpoint_url)
    url = _numeric(service.url)
    client = own_client(service.session, url)
    if revoke:
        ended = client.delete_page_sessions()["DeletedCount"]
        print_result({"ended": ended}, f"{ended} session{'' if ended == 1 else 's'} of the page ended", json=json)
        return
    token = client.create_page_token(ReadOnly=read_only)["Token"]
    address = f"{url.rstrip('/')}/_tidemill/#token={token}"
    if not browser:
        print_result({"address": address, "opened": False}, address, json=json)
        return
    file = user_directory("XDG_CACHE_HOME", ".cache").absolute() / "open.html"
    _write(file, address)
    opened = _has_screen() and webbrowser.open(file.as_uri())
    page = f"opened {url.rstrip('/')}/_tidemill/ in the browser; if it shows nothing, open this address once:"
    head = page if opened else "no browser was found here; open this address once:"
    print_result({"address": address, "opened": opened}, head, address, json=json)


def _numeric(url: str) -> str:
    """Return a URL with the address on which a service on this machine listens instead of ``localhost``.

    That is also ``::1``, where another user may listen on the same port, and would get the token. By HTTPS, the
    certificate shows who answers.
    """
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname != "localhost":
        return url
    return parts._replace(netloc=f"127.0.0.1:{parts.port or 80}").geturl()


def _has_screen() -> bool:
    """Return whether a browser can be shown. Without a screen one for terminals would start, without JavaScript."""
    names = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform != "linux" or any(os.environ.get(name) for name in names)


def _write(file: Path, address: str) -> None:
    """Write a document that leads to the address: as an argument of the browser, every user of the machine saw it."""
    make_directory(file.parent, mode=0o700)
    text = html.escape(address, quote=True)
    write_durably(
        file,
        f'<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>tidemill</title>'
        f'<meta http-equiv="refresh" content="0;url={text}">\n'.encode(),
    )
