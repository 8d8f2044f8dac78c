"""Clone the Git repository of ``git_config``, as AWS's SDK v2 describes it.

Git runs without a shell. A secret never stands on a command line, in the clone or in a message: a credential helper
that exists only for this command, and only for the repository's host, reads it from Git's environment.
"""

import os
import re
import shutil
import subprocess
import tempfile
import warnings
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

_TEXTS = ("repo", "branch", "commit", "username", "password", "token")
_SECRETS = ("token", "password")
_USER, _SECRET = "TIDEMILL_GIT_USERNAME", "TIDEMILL_GIT_SECRET"
_HELPER = f'!f() {{ test "$1" = get && printf "username=%s\\npassword=%s\\n" "${_USER}" "${_SECRET}"; }}; f'
_USERINFO = re.compile(r"(https?://)[^/@\s]+@")
_USER_OF_TOKEN = "x-access-token"  # noqa: S105 - GitHub and GitLab accept any user name with a token


class Clone:
    """A working copy in a temporary directory, which is removed with this object.

    Args:
        git_config: ``repo``, and optionally ``branch``, ``commit``, ``2FA_enabled``, ``username``, ``password`` and
            ``token``.

    Raises:
        ValueError: A member is not usable, or Git failed; then the message contains Git's own.
    """

    def __init__(self, git_config: Mapping[str, Any]) -> None:
        _check(git_config)
        git_config = _without_userinfo(git_config)
        directory = Path(tempfile.mkdtemp(prefix="tidemill-git-")).resolve()
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        self.path = directory / "repository"
        variables, options = _credentials(git_config)
        _git([*options, "clone", "--quiet", "--", git_config["repo"], str(self.path)], git_config, variables)
        for name in ("branch", "commit"):
            if name in git_config:
                _git(["-C", str(self.path), "checkout", "--quiet", git_config[name], "--"], git_config, {})
        self._check_links()

    def locate(self, path: str, *, argument: str) -> str:
        """Return the absolute path of a path in the repository.

        Args:
            path: Relative to the root of the repository.
            argument: Name of the argument that holds it, for the error.

        Raises:
            ValueError: It does not exist, or leads out of the repository.
        """
        found = (self.path / path).resolve()
        if Path(path).is_absolute() or not found.is_relative_to(self.path) or not found.exists():
            raise ValueError(
                f"{argument}={path!r} does not exist in the repository of git_config; expected a path relative to its"
                " root"
            )
        return str(self.path / path)

    def _check_links(self) -> None:
        """Refuse links out of the repository: packing follows links, so they would upload this machine's files."""
        for directory, names, files in os.walk(self.path):
            for name in (*names, *files):
                path = Path(directory, name)
                if path.is_symlink() and not path.resolve().is_relative_to(self.path):
                    raise ValueError(
                        f"git_config: {path.relative_to(self.path)} is a link out of the repository, to"
                        f" {path.readlink()}; remove it, or clone the repository yourself and give source_dir its path"
                    )


def _check(git_config: Any) -> None:
    if not isinstance(git_config, Mapping) or "repo" not in git_config:
        raise ValueError(f"git_config needs a repo, the URL of the repository; received {_shown(git_config)}")
    for name, value in git_config.items():
        if name == "2FA_enabled":
            if not isinstance(value, bool):
                raise ValueError(f"git_config['2FA_enabled']={value!r}: expected True or False")
        elif name not in _TEXTS:
            raise ValueError(f"git_config has the unknown member {name!r}; there are {', '.join(_TEXTS)}, 2FA_enabled")
        elif not isinstance(value, str) or not value or value.startswith("-") or not value.isprintable():
            shown = "***" if name in _SECRETS else repr(value)
            raise ValueError(f"git_config[{name!r}]={shown}: expected a text that does not begin with '-'")


def _without_userinfo(git_config: Mapping[str, Any]) -> dict[str, Any]:
    """Move a user name and password in the URL to members of their own, so that Git's command line lacks them."""
    url = urlsplit(git_config["repo"])
    if url.scheme != "https" or not url.password:
        return dict(git_config)
    userinfo, _, host = url.netloc.rpartition("@")
    username, _, password = userinfo.partition(":")
    found = {"username": unquote(username), "password": unquote(password)}
    plain = {"repo": url._replace(netloc=host).geturl()}
    return {**git_config, **({} if "token" in git_config else found), **plain}


def _credentials(git_config: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Return the variables and the options with which Git finds the user name and the secret, if there are some."""
    username, password, token = (git_config.get(name) for name in ("username", "password", "token"))
    if not (username or password or token):
        return {}, []
    url = urlsplit(git_config["repo"])
    if url.scheme != "https":
        if url.scheme == "http":
            raise ValueError(
                f"git_config: {_shown(git_config)} would send the secret in the clear; give an https:// URL"
            )
        warnings.warn(
            "git_config: username, password and token are ignored, because the repository is not cloned by https",
            UserWarning,
            stacklevel=2,
        )
        return {}, []
    if token and (username or password):
        warnings.warn("git_config: the token is used; username and password are ignored", UserWarning, stacklevel=2)
    elif not token and not (username and password):
        warnings.warn(
            "git_config: username and password belong together, and one is missing; both are ignored",
            UserWarning,
            stacklevel=2,
        )
        return {}, []
    variables = {_USER: _USER_OF_TOKEN, _SECRET: token} if token else {_USER: username or "", _SECRET: password or ""}
    host = url.netloc.rpartition("@")[2]
    # The first helper is empty: it removes those of the user, which would store the secret.
    options = [f"credential.https://{host}.helper={helper}" for helper in ("", _HELPER)]
    return variables, ["-c", "credential.helper=", *(part for option in options for part in ("-c", option))]


def _git(arguments: list[str], git_config: Mapping[str, Any], variables: Mapping[str, str]) -> None:
    # A question on the terminal would wait forever in a notebook or a pipeline.
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", **variables}
    try:
        ran = subprocess.run(
            ["git", *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise ValueError("git_config needs the program git, which is not on PATH; install it") from error
    if ran.returncode != 0:
        raise ValueError(
            f"git_config: {_shown(git_config)} cannot be used, git failed with status {ran.returncode}:"
            f" {_masked(ran.stderr.strip(), git_config)}"
        )


def _shown(git_config: Any) -> str:
    if not isinstance(git_config, Mapping):
        return repr(git_config)
    shown = {name: "***" if name in _SECRETS else value for name, value in git_config.items()}
    return _USERINFO.sub(r"\1***@", repr(shown))


def _masked(text: str, git_config: Mapping[str, Any]) -> str:
    for name in _SECRETS:
        if git_config.get(name):
            text = text.replace(git_config[name], "***")
    return text
