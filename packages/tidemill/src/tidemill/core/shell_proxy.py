"""What `tidemill env --sts` puts into a shell's environment, and how a process that outlives the shell leaves it again.

The service may be started in such a shell. It must reach AWS itself, e.g. a bucket of the setting `remote_s3`, and its
jobs must not get the token of the shell's proxy.
"""

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from tidemill.core.files import read_json, write_durably, write_json

BUNDLES = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE")
"""Variables that name the file with the certificates which a client trusts."""

_PROXIES = ("HTTPS_PROXY", "https_proxy")
_AUTHORITY = "NODE_EXTRA_CA_CERTS"
_USER = "tidemill-"
_BUNDLE = "tidemill-trusted"


def proxy_user(nonce: str, *, upstream: str) -> str:
    """Return the user in the URL of a shell's proxy.

    Args:
        nonce: Tells shells apart.
        upstream: URL of the proxy that the shell used before; empty for none.
    """
    return f"{_USER}{nonce}.{base64.urlsafe_b64encode(upstream.encode()).decode().rstrip('=')}"


def named_upstream(user: str) -> str | None:
    """Return the upstream proxy in a `proxy_user`, or None if the user is no such name.

    Args:
        user: A user in the URL of a proxy.
    """
    encoded = user.partition(".")[2]
    if not user.startswith(_USER):
        return None
    try:
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def upstream_of(environ: Mapping[str, str]) -> str:
    """Return the proxy of a shell for https, as it was before `tidemill env --sts`; empty without one.

    Args:
        environ: Variables of the shell.
    """
    url = next((environ[name] for name in reversed(_PROXIES) if environ.get(name)), "")
    upstream = named_upstream(urlsplit(url).username or "")
    return url if upstream is None else upstream


def write_bundle(content: bytes, *, directory: Path, name: str, environ: Mapping[str, str]) -> Path:
    """Write certificates for a shell to trust, and beside them what its variables named before.

    Args:
        content: PEM certificates.
        name: Tells bundles apart.
    """
    path = directory / f"{_BUNDLE}-{name}.pem"
    write_json(path.with_suffix(".json"), {each: environ[each] for each in BUNDLES if environ.get(each)})
    write_durably(path, content)
    return path


def own_bundle(environ: Mapping[str, str]) -> Path | None:
    """Return the file of `write_bundle` that a shell's variables name, or None.

    Args:
        environ: Variables of the shell.
    """
    named = (Path(environ.get(name, "")) for name in BUNDLES)
    return next((path for path in named if path.name.startswith(_BUNDLE) and path.is_file()), None)


def without_shell_proxy(environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables as they were before `tidemill env --sts`.

    Args:
        environ: Variables of a process.
    """
    if not any(named_upstream(urlsplit(environ.get(name, "")).username or "") is not None for name in _PROXIES):
        return dict(environ)
    upstream, bundle = upstream_of(environ), own_bundle(environ)
    before = (read_json(bundle.with_suffix(".json")) or {}) if bundle is not None else {}
    kept = {name: value for name, value in environ.items() if name not in (*_PROXIES, *BUNDLES, _AUTHORITY)}
    return kept | dict.fromkeys(_PROXIES if upstream else (), upstream) | before


def leave_shell_proxy() -> None:
    """Give this process the variables that it would have without `tidemill env --sts`."""
    before = without_shell_proxy(os.environ)
    for name in set(os.environ) - set(before):
        del os.environ[name]
    os.environ.update(before)
