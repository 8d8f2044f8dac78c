"""``git_config``: real Git, from a local repository and from an https server that wants a user name and a password."""

import base64
import shutil
import ssl
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import trustme

from tidemill.sdk import Session, TensorFlow, TensorFlowModel
from tidemill.sdk.git import Clone

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

SECRET = "s3cr3t-of-the-tests"


def git(*arguments: str, at: Path) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=at, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a bare repository, and its first commit."""
    work = tmp_path_factory.mktemp("work")
    git("init", "--quiet", at=work)
    (work / "src").mkdir()
    for name, text in (("src/train.py", "first"), ("src/more.py", "more"), ("lib.py", "lib"), ("top.py", "top")):
        (work / name).write_text(text)
    git("add", ".", at=work)
    git("commit", "--quiet", "-m", "first", at=work)
    first = git("rev-parse", "HEAD", at=work)
    (work / "src/train.py").write_text("second")
    git("commit", "--quiet", "-am", "second", at=work)
    git("checkout", "--quiet", "-b", "fast/er", at=work)
    (work / "src/train.py").write_text("branch")
    git("commit", "--quiet", "-am", "branch", at=work)
    git("checkout", "--quiet", "main", at=work)
    bare = work / "repository.git"
    git("clone", "--quiet", "--bare", ".", str(bare), at=work)
    git("update-server-info", at=bare)
    return bare, first


@pytest.fixture(scope="module")
def server(repository: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """Yield the URL of an https server that wants a password, and the credentials that it received."""
    seen: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            scheme, _, given = self.headers.get("authorization", "").partition(" ")
            if scheme != "Basic":
                self.send_response(401)
                self.send_header("www-authenticate", 'Basic realm="tests"')
                self.send_header("content-length", "0")
                self.end_headers()
                return
            seen.append(base64.b64decode(given).decode())
            if seen[-1].endswith(f":{SECRET}"):
                super().do_GET()
            else:
                self.send_error(403)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    files = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(files / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(repository[0].parent)))
    httpd.socket = context.wrap_socket(httpd.socket, server_side=True)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_SSL_CAINFO", str(files / "ca.pem"))
        yield f"https://127.0.0.1:{httpd.server_port}/repository.git", seen
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def packed(aws: Any, uri: str) -> dict[str, str]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    with tarfile.open(fileobj=BytesIO(aws.objects[bucket, key]), mode="r:gz") as tar:
        return {name: tar.extractfile(name).read().decode() for name in tar.getnames() if tar.getmember(name).isfile()}


def test_a_job_gets_the_code_of_a_branch_or_a_commit(aws: Any, session: Session, repository: tuple[Path, str]) -> None:
    bare, first = repository
    wanted = {"second": {}, "branch": {"branch": "fast/er"}, "first": {"branch": "main", "commit": first}}
    for text, members in wanted.items():
        estimator = TensorFlow(
            "train.py",
            source_dir="src",
            dependencies=["lib.py"],
            git_config={"repo": str(bare), **members},
            sagemaker_session=session,
        )
        estimator.fit(wait=False, job_name=text)
        sent = aws.named("CreateTrainingJob")[-1]["HyperParameters"]
        assert sent["sagemaker_program"] == '"train.py"'
        code = packed(aws, sent["sagemaker_submit_directory"].strip('"'))
        assert code == {"train.py": text, "more.py": "more", "lib.py": "lib"}


def test_a_script_of_the_repository_needs_no_source_directory(
    aws: Any, session: Session, repository: tuple[Path, str]
) -> None:
    config = {"repo": str(repository[0]), "branch": "main"}
    TensorFlow("src/train.py", git_config=config, sagemaker_session=session).fit(wait=False, job_name="one")
    sent = aws.named("CreateTrainingJob")[-1]["HyperParameters"]
    assert packed(aws, sent["sagemaker_submit_directory"].strip('"')) == {"train.py": "second"}
    TensorFlowModel("s3://bucket/model.tar.gz", entry_point="top.py", git_config=config, sagemaker_session=session)


@pytest.mark.parametrize(
    ("members", "user"),
    [
        ({"token": SECRET}, "x-access-token"),
        ({"token": SECRET, "2FA_enabled": True}, "x-access-token"),
        ({"username": "me", "password": SECRET}, "me"),
    ],
)
def test_https_gets_the_secret_and_no_command_line_has_it(
    server: tuple[str, list[str]],
    members: dict[str, Any],
    user: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, seen = server
    seen.clear()
    trace = tmp_path / "trace"
    monkeypatch.setenv("GIT_TRACE", str(trace))  # every command line of Git and its helpers
    clone = Clone({"repo": url, **members})
    assert (clone.path / "top.py").read_text() == "top"
    assert set(seen) == {f"{user}:{SECRET}"}
    assert "clone" in trace.read_text()
    assert SECRET not in trace.read_text()
    assert not [file for file in clone.path.rglob("*") if file.is_file() and SECRET.encode() in file.read_bytes()]


def test_a_password_in_the_url_is_taken_out_of_it(server: tuple[str, list[str]]) -> None:
    url, seen = server
    seen.clear()
    clone = Clone({"repo": url.replace("https://", f"https://me:{SECRET}@")})
    assert set(seen) == {f"me:{SECRET}"}
    assert SECRET not in (clone.path / ".git/config").read_text()


def test_a_refusal_shows_what_git_said_and_no_secret(server: tuple[str, list[str]]) -> None:
    with pytest.raises(ValueError, match=r"git failed with status 128: .*403") as refused:
        Clone({"repo": server[0], "token": "wrong-token"})
    assert "wrong-token" not in str(refused.value)
    with pytest.raises(ValueError, match=r"terminal prompts disabled|could not read Username"):
        Clone({"repo": server[0]})


def test_what_the_repository_lacks_is_named(repository: tuple[Path, str], session: Session) -> None:
    repo = {"repo": str(repository[0])}
    with pytest.raises(ValueError, match=r"pathspec 'absent'|invalid reference|unknown revision|absent"):
        Clone({**repo, "branch": "absent"})
    for arguments, name in (
        ({"entry_point": "absent.py"}, "entry_point='absent.py'"),
        ({"entry_point": "train.py", "source_dir": "absent"}, "source_dir='absent'"),
        ({"entry_point": "../../etc/passwd"}, "entry_point="),
        ({"entry_point": "top.py", "dependencies": ["absent.py"]}, "dependencies='absent.py'"),
    ):
        with pytest.raises(ValueError, match=f"{name}.*does not exist in the repository"):
            TensorFlow(**arguments, git_config=repo, sagemaker_session=session)


def test_a_link_out_of_the_repository_is_refused(tmp_path: Path) -> None:
    git("init", "--quiet", at=tmp_path)
    (tmp_path / "train.py").symlink_to("/etc/hostname")
    git("add", ".", at=tmp_path)
    git("commit", "--quiet", "-m", "link", at=tmp_path)
    with pytest.raises(ValueError, match=r"train\.py is a link out of the repository, to /etc/hostname"):
        Clone({"repo": str(tmp_path)})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"repo": "--upload-pack=touch /tmp/x"}, "does not begin with '-'"),
        ({"repo": "x", "branch": "-b"}, "does not begin with '-'"),
        ({"repo": "x", "tag": "v1"}, "unknown member 'tag'"),
        ({"repo": "x", "2FA_enabled": "yes"}, "expected True or False"),
        ({"repo": "x", "token": 7}, r"\['token'\]=\*\*\*"),
        ({"repo": "http://127.0.0.1/x", "token": "t"}, "in the clear"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Clone(config)


def test_ssh_uses_the_users_own_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ssh"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called\necho "no key fits" >&2\nexit 255\n')
    program.chmod(0o700)
    monkeypatch.setenv("GIT_SSH", str(program))
    with (
        pytest.warns(UserWarning, match="are ignored, because the repository is not cloned by https"),
        pytest.raises(ValueError, match="no key fits"),
    ):
        Clone({"repo": "git@example.com:team/code.git", "token": SECRET})
    called = (tmp_path / "called").read_text()
    assert "git@example.com" in called
    assert SECRET not in called
