"""Which requirements are installed once for all jobs."""

import pytest

from tidemill.environments.requirements import Requirements

_MARKED = "a[x, y]>=1,<2 ; python_version > '3' or a == \"b\""


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("numpy==1.0\n", ["numpy==1.0"]),
        ("\ufeff# m\u00fcnz\nnumpy  # why\n\n", ["numpy"]),
        (_MARKED, [_MARKED]),
        ("a==1.0 \\\n  --hash=sha256:0a\\\n  --hash=sha256:1\n", ["a==1.0 --hash=sha256:0a --hash=sha256:1"]),
        ("--pre\n--only-binary :all:\n--no-binary=a,b\n", ["--pre", "--only-binary :all:", "--no-binary=a,b"]),
        ("x (>=1)", ["x (>=1)"]),
    ],
)
def test_packages_that_are_only_named_are_installed_for_all_jobs(text, lines):
    found = Requirements.parse(text.encode())
    assert (found.own, list(found.lines)) == ("", lines)
    assert Requirements.parse(found.text.encode()) == found


@pytest.mark.parametrize(
    "line",
    [
        *("./local", "local/", "-e .", "-r other.txt", "-c limits.txt", "--requirement=x", "tiny-1.0-py3-none-any.whl"),
        *("-i http://host", "--index-url=http://host", "--extra-index-url x", "-f links", "--find-links=."),
        *("--no-index", "--trusted-host h", "tiny @ file:///opt/ml/code/tiny", "git+https://host/x"),
        *("https://host/x.zip", "x; a=='/y'", "numpy --index-url=x", "numpy\\\n-i http://host", "--pre --index-url x"),
        *("${HOME}", "numpy --config-settings=a=b", "nu.w\\\nhl", "x.tar.gz", "\u0131nput", "--hash=sha256:0"),
        *("x --global-option=y", "--only-binary :all: -i x"),
    ],
)
def test_everything_else_belongs_to_the_job(line):
    assert "is not a package of the service's index" in Requirements.parse(f"numpy\n{line}\n".encode()).own


def test_text_of_another_encoding_belongs_to_the_job():
    assert Requirements.parse("numpy\n".encode("utf-16")).own
