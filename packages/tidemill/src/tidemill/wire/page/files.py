"""The built files of the page, as they are sent: in memory, compressed, with the headers of each."""

import gzip
from dataclasses import dataclass
from pathlib import Path

from tidemill.wire.page.paths import PREFIX
from tidemill.wire.reply import HttpReply

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
"""All that a build may have: a file of another kind is a mistake of the build."""
_COMPRESSED = (".css", ".html", ".js", ".svg")
_ASSETS = "assets/"
_INDEX = "index.html"
_MISSING = (
    "The page is not built in this installation: `make page` builds it in a checkout, with Node.js 20.19 or later"
    " (wheels have it).\n"
)


@dataclass(frozen=True, slots=True)
class _PageFile:
    content_type: str
    plain: bytes
    gzipped: bytes | None


class PageFiles:
    """Reads the files when the first one is asked for, and again after a new build.

    Args:
        directory: Directory of the build, which need not exist.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, _PageFile] = {}
        self._built_ns = -1

    def reply(self, path: str, *, accepts_gzip: bool, origin: str) -> HttpReply:
        """Return the answer to a GET.

        Args:
            path: Path below ``/_tidemill/``, as sent. What names no file is a view, so that the answer is index.html.
            accepts_gzip: Whether the client decompresses.
            origin: Where the page is, e.g. ``http://127.0.0.1:8780``.
        """
        self._load()
        if _INDEX not in self._files:
            return HttpReply(503, [(b"content-type", b"text/plain; charset=utf-8"), _NO_STORE], _MISSING.encode())
        if path.startswith(_ASSETS) and path not in self._files:
            return HttpReply(404, [(b"content-type", b"text/plain"), _NO_STORE], b"There is no such file.\n")
        is_asset = path.startswith(_ASSETS)
        file = self._files[path if is_asset else _INDEX]
        headers = [(b"content-type", file.content_type.encode()), (b"vary", b"accept-encoding")]
        headers.append(_IMMUTABLE if is_asset else _NO_STORE)
        headers.append((b"content-security-policy", _policy(origin).encode("ascii")))
        if file.gzipped is None or not accepts_gzip:
            return HttpReply(200, headers, file.plain)
        headers.append((b"content-encoding", b"gzip"))
        return HttpReply(200, headers, file.gzipped)

    def _load(self) -> None:
        try:
            built_ns = (self._directory / _INDEX).stat().st_mtime_ns
        except FileNotFoundError:
            self._files.clear()
            self._built_ns = -1
            return
        if built_ns == self._built_ns:
            return
        self._files = {
            path.relative_to(self._directory).as_posix(): _read(path)
            for path in self._directory.rglob("*")
            if path.suffix in _TYPES
        }
        self._built_ns = built_ns


def _read(path: Path) -> _PageFile:
    plain = path.read_bytes()
    gzipped = gzip.compress(plain, 9, mtime=0) if path.suffix in _COMPRESSED else None
    return _PageFile(_TYPES[path.suffix], plain, gzipped)


def _policy(origin: str) -> str:
    """Return the content security policy: only files of the build run, and text never becomes markup or a script.

    Objects of S3 have the same origin. So scripts and styles are limited to the folder of the build, where the policy's
    syntax can name it: it has no IPv6 addresses.
    """
    own = "'self'" if "[" in origin else f"{origin}{PREFIX}{_ASSETS}"
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {own}",
            f"style-src {own}",
            "img-src 'self' blob: data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


_NO_STORE = (b"cache-control", b"no-store")
_IMMUTABLE = (b"cache-control", b"private, max-age=31536000, immutable")
